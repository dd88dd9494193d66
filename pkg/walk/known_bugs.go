package walk

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

// knownBug is a fault of some releases of kube-proxy that leads to what a
// diagnosis shows.
type knownBug struct {
	// from and to are the first and the last release that has it, each
	// minor*1000+patch of 1.x.
	from, to int
	// mode restricts it; "" for every mode.
	mode  string
	codes []diagnosis.Code
	// onlyIf restricts it further; nil for always.
	onlyIf func(*corev1.Service) bool
	text   string
}

// knownBugTable is from Kubernetes' changelogs, issues and pull requests. A
// later patch of a minor in the range may have the mend.
var knownBugTable = []knownBug{
	{from: 27_000, to: 29_000, mode: "iptables", codes: []diagnosis.Code{diagnosis.StaleBackend, diagnosis.BackendMissing, diagnosis.VIPNotProgrammed},
		text: "1.27.0 to 1.29.0 may lose an update in a partial sync (kubernetes#121362, mended by #122204)"},
	{from: 26_000, to: 29_000, mode: "iptables", codes: []diagnosis.Code{diagnosis.ExternalIPNotProgrammed}, onlyIf: externalLocalService,
		text: "1.26.0 to 1.29.0 do not serve externalIPs with externalTrafficPolicy Local (kubernetes#121919)"},
	{from: 29_000, to: 29_999, mode: "nftables", codes: []diagnosis.Code{diagnosis.FirewallChainDrops},
		text: "in 1.29 loadBalancerSourceRanges did not work in nftables mode (kubernetes#122614)"},
	{from: 29_000, to: 99_000, mode: "nftables", codes: []diagnosis.Code{diagnosis.ProxyCrashing, diagnosis.ProxySyncStale},
		text: "an nft in kube-proxy's image that is older than the one that made other tables of the node may crash on them (kubernetes#136786); compare `nft list tables`"},
	{from: 26_000, to: 99_000, mode: "ipvs", codes: []diagnosis.Code{diagnosis.ProxyCrashing},
		text: "since 1.26 kube-proxy ends where IPVS' kernel modules are missing, and falls back to nothing (kubernetes#111806)"},
	{from: 37_000, to: 99_000, codes: []diagnosis.Code{diagnosis.ProxyCrashing},
		text: "since 1.37 kube-proxy ends when its node's address changes, to start anew with the new one (kubernetes#138183)"},
	{from: 37_000, to: 99_000, mode: "iptables", codes: []diagnosis.Code{diagnosis.HookMissing},
		text: "since 1.37 kube-proxy does no full sync in a cluster of over 1000 endpoints: what somebody else flushed stays away until it restarts (kubernetes#138571)"},
}

func externalLocalService(svc *corev1.Service) bool {
	return svc != nil && svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// knownBugs are the known faults of the node's kube-proxy that fit a
// diagnosis, as evidence: its version, and what is known of it. Nothing where
// the version was not read.
func (p *Pass) knownBugs(v *nodeView, code diagnosis.Code) []diagnosis.Evidence {
	version, e := v.proxyVersion()
	if version < 0 {
		return nil
	}
	var out []diagnosis.Evidence
	for _, b := range knownBugTable {
		if version < b.from || version > b.to || !slices.Contains(b.codes, code) || b.mode != "" && b.mode != v.seen.mode() || b.onlyIf != nil && !b.onlyIf(p.Service) {
			continue
		}
		one := e
		one.Quote += ": " + b.text
		out = append(out, one)
	}
	return out
}

// proxyVersion is the release of the node's kube-proxy, as minor*1000+patch,
// and where it was read; negative where it was not.
func (v *nodeView) proxyVersion() (int, diagnosis.Evidence) {
	if v.seen.pod != nil {
		for _, c := range v.seen.pod.Spec.Containers {
			if n := parseRelease(imageTag(c.Image)); n >= 0 {
				return n, podEvidence(v.seen.pod, ".spec.containers[*].image", c.Image)
			}
		}
		return -1, diagnosis.Evidence{}
	}
	// Where it is no pod it is part of what the kubelet comes with.
	if v.object == nil || v.seen.container() == "" {
		return -1, diagnosis.Evidence{}
	}
	text := v.object.Status.NodeInfo.KubeletVersion
	return parseRelease(text), diagnosis.Evidence{
		Source: "node/" + v.object.Name + " .status.nodeInfo.kubeletVersion", Ref: "node/" + v.object.Name, Quote: text,
		Command: kubectl("get", "node", v.object.Name, "-o", "jsonpath={.status.nodeInfo.kubeletVersion}"),
	}
}

// imageTag is the tag of an image, without a digest; "" where it has none.
func imageTag(image string) string {
	image, _, _ = strings.Cut(image, "@")
	image = image[strings.LastIndexByte(image, '/')+1:]
	_, tag, _ := strings.Cut(image, ":")
	return tag
}

// parseRelease reads v1.MINOR.PATCH, with whatever a distribution put behind
// it; -1 for anything else.
func parseRelease(s string) int {
	rest, ok := strings.CutPrefix(strings.TrimPrefix(s, "v"), "1.")
	if !ok {
		return -1
	}
	minorText, patchText, ok := strings.Cut(rest, ".")
	minor, err := strconv.Atoi(minorText)
	if !ok || err != nil || minor < 0 || minor > 98 {
		return -1
	}
	end := strings.IndexFunc(patchText, func(r rune) bool { return r < '0' || r > '9' })
	if end >= 0 {
		patchText = patchText[:end]
	}
	patch, err := strconv.Atoi(patchText)
	if err != nil || patch < 0 || patch > 999 {
		return -1
	}
	return minor*1000 + patch
}
