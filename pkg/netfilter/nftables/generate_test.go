package nftables

import (
	"encoding/json"
	"fmt"
	"strings"
)

// generated writes a cluster's table kube-proxy, of the shape of v1.37, in
// both forms: services of ClusterIP 10.96.x.y port 80, each with endpoints
// 10.128.x.y port 8080.
func generated(services, endpoints int) (text, inJSON string) {
	g := &generator{}
	g.object("metainfo", map[string]any{"version": "1.0.9", "json_schema_version": 1})
	g.object("table", map[string]any{"family": "ip", "name": "kube-proxy", "handle": 1})
	g.text.WriteString("table ip kube-proxy {\n\tcomment \"rules for kube-proxy\"\n")
	g.sets(services, endpoints)
	g.chain("services", "",
		`ip daddr @cluster-ips ip saddr != 10.128.0.0/9 meta mark set meta mark | 0x00004000`,
		`ip daddr . meta l4proto . th dport vmap @service-ips`,
		`ip daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports`)
	g.chain("masquerading", "",
		`ct status dnat ip saddr . ip daddr . meta l4proto . th dport @hairpin-connections masquerade fully-random`,
		`meta mark & 0x00004000 != 0x00000000 meta mark set meta mark ^ 0x00004000 masquerade fully-random`)
	g.chain("nat-prerouting", "type nat hook prerouting priority dstnat; policy accept;", "jump services")
	g.chain("nat-output", "type nat hook output priority -100; policy accept;", "jump services")
	g.chain("nat-postrouting", "type nat hook postrouting priority srcnat; policy accept;", "jump masquerading")
	g.chain("service-endpoints-check", "", `ip daddr . meta l4proto . th dport vmap @no-endpoint-services`)
	g.chain("cluster-ips-check", "", `ip daddr @cluster-ips reject comment "Reject traffic to invalid ports of ClusterIPs"`)
	g.chain("reject-chain", "", "reject")
	g.chain("filter-forward", "type filter hook forward priority filter; policy accept;", "ct state new jump service-endpoints-check", "ct state new jump cluster-ips-check")
	for s := range services {
		var ends []string
		for e := range endpoints {
			ends = append(ends, fmt.Sprintf("%d : %s . 8080", e, endpointIP(s, e, endpoints)))
		}
		g.chain(chainName(s), "", fmt.Sprintf("meta l4proto tcp dnat ip to numgen random mod %d map { %s }", endpoints, strings.Join(ends, ", ")))
	}
	g.text.WriteString("}\n")
	return g.text.String(), `{"nftables": [` + strings.Join(append(g.objects, g.rules...), ", ") + "]}\n"
}

type generator struct {
	text    strings.Builder
	objects []string
	rules   []string
}

func (g *generator) object(kind string, body any) {
	b, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	g.objects = append(g.objects, `{"`+kind+`": `+spaced(b)+`}`)
}

// spaced puts a blank behind colons and commas, as nft does.
func spaced(b []byte) string {
	s := strings.ReplaceAll(string(b), `":`, `": `)
	s = strings.ReplaceAll(s, `,"`, `, "`)
	return strings.ReplaceAll(strings.ReplaceAll(s, `,[`, `, [`), `,{`, `, {`)
}

func (g *generator) sets(services, endpoints int) {
	g.set("cluster-ips", "ipv4_addr", services, func(i int) (string, string, string) {
		return serviceIP(i), fmt.Sprintf("%q", serviceIP(i)), ""
	})
	g.set("nodeport-ips", "ipv4_addr", 1, func(int) (string, string, string) { return "192.168.0.2", `"192.168.0.2"`, "" })
	g.set("hairpin-connections", "ipv4_addr . ipv4_addr . inet_proto . inet_service", services, func(i int) (string, string, string) {
		ip := endpointIP(i, 0, endpoints)
		return ip + " . " + ip + " . tcp . 8080", fmt.Sprintf(`{"concat": [%q, %q, "tcp", 8080]}`, ip, ip), ""
	})
	g.set("no-endpoint-services", "ipv4_addr . inet_proto . inet_service : verdict", 0, nil)
	g.set("service-nodeports", "inet_proto . inet_service : verdict", 0, nil)
	g.set("service-ips", "ipv4_addr . inet_proto . inet_service : verdict", services, func(i int) (string, string, string) {
		return serviceIP(i) + " . tcp . 80", fmt.Sprintf(`{"concat": [%q, "tcp", 80]}`, serviceIP(i)), chainName(i)
	})
}

// set writes a set, or a map of verdicts to go to a chain.
func (g *generator) set(name, types string, n int, element func(int) (text, inJSON, chain string)) {
	key, _, isMap := strings.Cut(types, " : ")
	kind := "set"
	body := map[string]any{"family": "ip", "name": name, "table": "kube-proxy", "type": strings.Split(key, " . "), "handle": 2}
	if isMap {
		kind = "map"
		body["map"] = "verdict"
	}
	fmt.Fprintf(&g.text, "\t%s %s {\n\t\ttype %s\n", kind, name, types)
	var elems []string
	for i := range n {
		text, inJSON, chain := element(i)
		sep := ",\n\t\t\t     "
		if i == 0 {
			sep = "\t\telements = { "
		}
		g.text.WriteString(sep + text)
		if chain != "" {
			g.text.WriteString(" : goto " + chain)
			inJSON = fmt.Sprintf(`[%s, {"goto": {"target": %q}}]`, inJSON, chain)
		}
		elems = append(elems, inJSON)
	}
	if n > 0 {
		g.text.WriteString(" }\n")
		body["elem"] = json.RawMessage("[" + strings.Join(elems, ",") + "]")
	}
	g.text.WriteString("\t}\n\n")
	g.object(kind, body)
}

// chain writes a chain; its rules in JSON are those that nft would print.
func (g *generator) chain(name, hook string, rules ...string) {
	fmt.Fprintf(&g.text, "\tchain %s {\n", name)
	body := map[string]any{"family": "ip", "table": "kube-proxy", "name": name, "handle": 3}
	if hook != "" {
		fmt.Fprintf(&g.text, "\t\t%s\n", hook)
		f := strings.Fields(strings.ReplaceAll(hook, ";", ""))
		prio, _ := baseChain{prio: f[5]}.priorityValue()
		body["type"], body["hook"], body["prio"], body["policy"] = f[1], f[3], prio, f[7]
	}
	g.object("chain", body)
	for _, r := range rules {
		g.text.WriteString("\t\t" + r + "\n")
		g.rules = append(g.rules, fmt.Sprintf(`{"rule": {"family": "ip", "table": "kube-proxy", "chain": %q, "handle": 4, "expr": [%s]}}`, name, asJSON(r)))
	}
	g.text.WriteString("\t}\n\n")
}

// asJSON is the expression list of the rules that the generator writes.
func asJSON(rule string) string {
	if rest, ok := strings.CutPrefix(rule, "meta l4proto tcp dnat ip to numgen random mod "); ok {
		mod, list, _ := strings.Cut(rest, " map { ")
		var elems []string
		for e := range strings.SplitSeq(strings.TrimSuffix(list, " }"), ", ") {
			n, to, _ := strings.Cut(e, " : ")
			ip, port, _ := strings.Cut(to, " . ")
			elems = append(elems, fmt.Sprintf(`[%s, {"concat": [%q, %s]}]`, n, ip, port))
		}
		return `{"match": {"op": "==", "left": {"meta": {"key": "l4proto"}}, "right": "tcp"}}, {"dnat": {"family": "ip", "addr": {"map": {"key": {"numgen": {"mode": "random", "mod": ` +
			mod + `, "offset": 0}}, "data": {"set": [` + strings.Join(elems, ", ") + `]}}}}}`
	}
	return map[string]string{
		"jump services":     `{"jump": {"target": "services"}}`,
		"jump masquerading": `{"jump": {"target": "masquerading"}}`,
		"reject":            `{"reject": {"type": "icmp", "expr": "port-unreachable"}}`,
		"ct state new jump service-endpoints-check":                                                                 ctNew + `{"jump": {"target": "service-endpoints-check"}}`,
		"ct state new jump cluster-ips-check":                                                                       ctNew + `{"jump": {"target": "cluster-ips-check"}}`,
		`ip daddr @cluster-ips ip saddr != 10.128.0.0/9 meta mark set meta mark | 0x00004000`:                       `{"match": {"op": "==", "left": ` + daddr + `, "right": "@cluster-ips"}}, {"match": {"op": "!=", "left": ` + saddr + `, "right": {"prefix": {"addr": "10.128.0.0", "len": 9}}}}, {"mangle": {"key": {"meta": {"key": "mark"}}, "value": {"|": [{"meta": {"key": "mark"}}, 16384]}}}`,
		`ip daddr . meta l4proto . th dport vmap @service-ips`:                                                      vmap(daddr+", "+protoPort, "service-ips"),
		`ip daddr . meta l4proto . th dport vmap @no-endpoint-services`:                                             vmap(daddr+", "+protoPort, "no-endpoint-services"),
		`ip daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports`:                                    `{"match": {"op": "==", "left": ` + daddr + `, "right": "@nodeport-ips"}}, ` + vmap(protoPort, "service-nodeports"),
		`ip daddr @cluster-ips reject comment "Reject traffic to invalid ports of ClusterIPs"`:                      `{"match": {"op": "==", "left": ` + daddr + `, "right": "@cluster-ips"}}, {"reject": {"type": "icmp", "expr": "port-unreachable"}}`,
		`ct status dnat ip saddr . ip daddr . meta l4proto . th dport @hairpin-connections masquerade fully-random`: `{"match": {"op": "in", "left": {"ct": {"key": "status"}}, "right": "dnat"}}, {"match": {"op": "==", "left": {"concat": [` + saddr + ", " + daddr + ", " + protoPort + `]}, "right": "@hairpin-connections"}}, {"masquerade": {"flags": "fully-random"}}`,
		`meta mark & 0x00004000 != 0x00000000 meta mark set meta mark ^ 0x00004000 masquerade fully-random`:         `{"match": {"op": "!=", "left": {"&": [{"meta": {"key": "mark"}}, 16384]}, "right": 0}}, {"mangle": {"key": {"meta": {"key": "mark"}}, "value": {"^": [{"meta": {"key": "mark"}}, 16384]}}}, {"masquerade": {"flags": "fully-random"}}`,
	}[rule]
}

const (
	ctNew     = `{"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": "new"}}, `
	saddr     = `{"payload": {"protocol": "ip", "field": "saddr"}}`
	daddr     = `{"payload": {"protocol": "ip", "field": "daddr"}}`
	protoPort = `{"meta": {"key": "l4proto"}}, {"payload": {"protocol": "th", "field": "dport"}}`
)

func vmap(key, set string) string {
	return `{"vmap": {"key": {"concat": [` + key + `]}, "data": "@` + set + `"}}`
}

func chainName(s int) string {
	return fmt.Sprintf("service-%08X-ns%d/svc-%d/tcp/http", s*0x9E3779B9&0xffffffff, s%100, s)
}
func serviceIP(s int) string { return fmt.Sprintf("10.%d.%d.%d", 96+s>>16, s>>8&255, s&255) }
func endpointIP(s, e, endpoints int) string {
	n := s*endpoints + e
	return fmt.Sprintf("10.%d.%d.%d", 128+n>>16&127, n>>8&255, n&255)
}
