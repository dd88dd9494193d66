package walk

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// externalNameHasNoVIP says what an ExternalName Service is, and warns where
// the alias cannot work.
var externalNameHasNoVIP = &Check{
	Code:    diagnosis.ExternalNameHasNoVIP,
	Applies: isExternalName,
	Run: func(p *Pass) {
		to := p.Service.Spec.ExternalName
		f := Finding{
			Severity: diagnosis.Info,
			Title:    "the Service is a DNS alias for " + to + ": there is no VIP to walk",
			Expected: "clients that resolve the Service's name and follow the alias",
			Found:    "type ExternalName, externalName " + to,
			Evidence: []diagnosis.Evidence{p.serviceField(".spec.externalName", to)},
		}
		if why := p.aliasFault(to); why != "" {
			f.Severity = diagnosis.Warning
			f.Title = "the Service is a DNS alias that leads nowhere: " + why
			f.Found += "; " + why
		}
		p.Report(f)
	},
}

func isExternalName(p *Pass) bool {
	return p.Service != nil && p.Service.Spec.Type == corev1.ServiceTypeExternalName
}

// aliasFault says why an alias cannot work, "" if nothing speaks against it.
func (p *Pass) aliasFault(to string) string {
	if _, err := netip.ParseAddr(strings.Trim(to, "[]")); err == nil {
		return "an externalName is a DNS name, and " + to + " is an IP address, which no DNS server gives as an alias"
	}
	parts := strings.Split(strings.TrimSuffix(to, "."), ".")
	if len(parts) < 3 || parts[2] != "svc" {
		return ""
	}
	name, ns := parts[0], parts[1]
	if name == p.Service.Name && ns == p.Service.Namespace {
		return "it points at itself"
	}
	if p.snap.Reads.Object(snapshot.Services, ns, name).Status == snapshot.Done && p.servicesByName[types.NamespacedName{Namespace: ns, Name: name}] == nil {
		return fmt.Sprintf("there is no service %s in namespace %s", name, ns)
	}
	return ""
}
