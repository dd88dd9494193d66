package walk

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/proxy"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// TestAuditOracles audits what kube-proxy's own tests program, without the
// objects: every frontend that they have is found, none besides, and there is
// nothing to find fault with. What the rules turn away is what the objects give
// no endpoint to.
func TestAuditOracles(t *testing.T) {
	if _, err := os.Stat(oracleDir); err != nil {
		t.Skipf("kube-proxy's recorded rules are not here: %v", err)
	}
	for mode, want := range map[string]int{"iptables": 67, "nftables": 57} {
		t.Run(mode, func(t *testing.T) {
			files, err := filepath.Glob(filepath.Join(oracleDir, mode+"-*.json"))
			if err != nil {
				t.Fatal(err)
			}
			walked, frontends := 0, 0
			for _, name := range files {
				var o oracle
				readJSON(t, name, &o)
				if !o.HasObjects {
					continue
				}
				var texts map[string]any
				readJSON(t, filepath.Join(oracleDir+"-kernel", strings.TrimSuffix(filepath.Base(name), ".json")+".real.json"), &texts)
				walked++
				for _, key := range oracleTexts[mode] {
					for _, bare := range []bool{false, true} {
						t.Run(fmt.Sprintf("%s/%s/bare=%t", filepath.Base(name), key, bare), func(t *testing.T) {
							frontends += o.audit(t, textOf(t, texts[key]), bare)
						})
					}
				}
			}
			t.Logf("%d files, %d frontends", walked, frontends)
			if walked != want {
				t.Errorf("%d files were walked, want %d", walked, want)
			}
		})
	}
}

// alone is the node's state without any object; bare without anything but its
// rules.
func (o *oracle) alone(rules string, bare bool) *snapshot.Snapshot {
	s := o.snapshot(rules)
	s.Reads, s.Objects = nil, snapshot.Objects{}
	st := s.Nodes[0]
	st.Texts = slices.DeleteFunc(st.Texts, func(t snapshot.Text) bool {
		return t.Kind == snapshot.ProxyMode || t.Kind == snapshot.ProxyProcess || bare && (t.Kind == snapshot.IPAddr || t.Kind == snapshot.Sysctl)
	})
	return s
}

func (o *oracle) audit(t *testing.T, rules string, bare bool) int {
	want, empty := o.wantFrontends()
	r := Walk(o.alone(rules, bare), Options{All: true})
	if !r.Audit {
		t.Fatal("no audit")
	}
	var got, turned []string
	for _, svc := range r.Services {
		if svc.Type == "" && len(svc.Paths) == 0 && svc.Namespace == "" {
			if len(want) > 0 {
				t.Errorf("nothing was found:\n%s", describe(svc))
			}
			continue
		}
		if svc.Verdict != diagnosis.Unknown {
			t.Errorf("%s/%s is %s", svc.Namespace, svc.Name, svc.Verdict)
		}
		if l := svc.Layers[2]; l.Status != diagnosis.OK {
			t.Errorf("layer 3 of %s/%s is %s\n%s", svc.Namespace, svc.Name, l.Status, describe(svc))
		}
		for _, f := range svc.Frontends {
			got = append(got, oracleFrontend(svc.Namespace, svc.Name, f.Name, string(f.Kind), f.IP, f.Port, f.Protocol))
		}
		for _, d := range svc.Diagnoses {
			if d.Code != diagnosis.RejectedAsEmpty || d.Severity != diagnosis.Info {
				t.Errorf("%s %s\n%s", d.Code, d.Title, describe(svc))
			}
		}
		for _, p := range svc.Paths {
			if strings.Contains(p.Summary, "endpoints") {
				turned = append(turned, svc.Namespace+"/"+svc.Name)
			}
		}
	}
	slices.Sort(got)
	if d := gocmp.Diff(want, got); d != "" {
		t.Errorf("frontends (-want +got):\n%s", d)
	}
	slices.Sort(turned)
	if d := gocmp.Diff(empty, slices.Compact(turned)); d != "" {
		t.Errorf("turned away (-want +got):\n%s", d)
	}
	return len(got)
}

// wantFrontends are those that the objects have of the family, with the
// Services that have no endpoint for some of them.
func (o *oracle) wantFrontends() (all, empty []string) {
	v6 := o.Proxier.IPFamily == "IPv6"
	node := proxy.Node{Name: o.Proxier.NodeName, Zone: o.Proxier.TopologyLabels["topology.kubernetes.io/zone"]}
	for _, text := range o.NodeIPs {
		node.Addresses = append(node.Addresses, netip.MustParseAddr(text))
	}
	for i := range o.Services {
		svc := &o.Services[i]
		for _, f := range proxy.Frontends(svc) {
			if f.V6 != v6 {
				continue
			}
			ip := ""
			if f.IP.IsValid() {
				ip = f.IP.String()
			}
			all = append(all, oracleFrontend(svc.Namespace, svc.Name, f.PortName, string(f.Kind), ip, f.Port, string(f.Protocol)))
			kind := proxy.PodClient
			if f.Kind != proxy.ClusterIP {
				kind = proxy.ExternalClient
			}
			var of []*discoveryv1.EndpointSlice
			for j := range o.EndpointSlices {
				if sl := &o.EndpointSlices[j]; sl.Namespace == svc.Namespace && sl.Labels[discoveryv1.LabelServiceName] == svc.Name {
					of = append(of, sl)
				}
			}
			if a := proxy.Expect(svc, of, node, kind, f).Action; a == proxy.Reject || a == proxy.Drop {
				empty = append(empty, svc.Namespace+"/"+svc.Name)
			}
		}
	}
	slices.Sort(all)
	slices.Sort(empty)
	return all, slices.Compact(empty)
}

// oracleFrontend is a frontend in one line. Rules tell an external IP from a
// load balancer's only by what is noted beside them, and not always then.
func oracleFrontend(namespace, name, port, kind, ip string, n int32, protocol string) string {
	if kind == string(proxy.ExternalIP) || kind == string(proxy.LoadBalancer) {
		kind = "external"
	}
	return fmt.Sprintf("%s/%s:%s %s %s:%d/%s", namespace, name, port, kind, ip, n, protocol)
}
