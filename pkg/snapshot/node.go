package snapshot

import "time"

// TextKind says what a text of a node's state is. The values are the names of
// the files in a bundle, without the ending.
type TextKind string

const (
	IptablesSave        TextKind = "iptables-save"         // IPv4, whichever backend, or not known which
	Ip6tablesSave       TextKind = "ip6tables-save"        // IPv6
	IptablesLegacySave  TextKind = "iptables-legacy-save"  // IPv4, known to be the legacy backend beside another
	Ip6tablesLegacySave TextKind = "ip6tables-legacy-save" // IPv6, the same
	NftRuleset          TextKind = "nft-ruleset"           // nft list ruleset or list table, as text or as JSON (-j)
	NftTables           TextKind = "nft-tables"            // nft list tables, as text or as JSON (-j): in which order they were made
	IpsetSave           TextKind = "ipset-save"            // ipset save, or ipset list
	Ipvsadm             TextKind = "ipvsadm"               // ipvsadm -Ln, or ipvsadm -Sn
	ProcIPVS            TextKind = "proc-net-ip-vs"        // /proc/net/ip_vs
	IPAddr              TextKind = "ip-addr"               // ip addr
	IPRoute             TextKind = "ip-route"              // ip route show table all, or ip route
	IPRule              TextKind = "ip-rule"               // ip rule
	IP6Rule             TextKind = "ip6-rule"              // ip -6 rule
	Sysctl              TextKind = "sysctl"                // sysctl -a, or the part that matters: name = value
	ProcModules         TextKind = "proc-modules"          // /proc/modules
	ModulesBuiltin      TextKind = "modules-builtin"       // the lines for networks of /lib/modules/RELEASE/modules.builtin
	Conntrack           TextKind = "conntrack"             // /proc/net/nf_conntrack or conntrack -L; of node-state, the connections to Services
	ConntrackStat       TextKind = "conntrack-stat"        // /proc/net/stat/nf_conntrack
	PodSockets          TextKind = "pod-sockets"           // listening sockets of the node's pods: "UID PROTO ADDRESS:PORT" a line, or "UID none"
	TableNames          TextKind = "ip-tables-names"       // /proc/net/ip_tables_names: legacy tables that exist
	TableNames6         TextKind = "ip6-tables-names"      // /proc/net/ip6_tables_names
	ProxyProcess        TextKind = "proxy-process"         // processes that may be the service proxy: "PID STATE NAME" a line
	ProxyMode           TextKind = "proxy-mode"            // what kube-proxy's /proxyMode answers
	ProxyHealthz        TextKind = "proxy-healthz"         // what kube-proxy's /healthz answers, status line first
	ProxyLivez          TextKind = "proxy-livez"           // what kube-proxy's /livez answers, status line first
	ProxyMetrics        TextKind = "proxy-metrics"         // of kube-proxy's /metrics, its own but for the buckets of histograms
	ProxyConfigz        TextKind = "proxy-configz"         // what kube-proxy's /configz answers: the configuration in force
	ProxyLog            TextKind = "proxy-log"             // lines of kube-proxy's log
	CiliumServices      TextKind = "cilium-services"       // cilium-dbg service list, or cilium-dbg bpf lb list
	Hostname            TextKind = "hostname"
	Uname               TextKind = "uname" // uname -a
)

// TextKinds are all kinds, in the order in which a bundle lists them.
var TextKinds = []TextKind{
	IptablesSave, Ip6tablesSave, IptablesLegacySave, Ip6tablesLegacySave, NftRuleset, NftTables, IpsetSave, Ipvsadm, ProcIPVS, IPAddr, IPRoute, IPRule, IP6Rule, Sysctl,
	ProcModules, ModulesBuiltin, Conntrack, ConntrackStat, PodSockets, TableNames, TableNames6, ProxyProcess, ProxyMode, ProxyHealthz, ProxyLivez, ProxyMetrics, ProxyConfigz, ProxyLog, CiliumServices, Hostname, Uname,
}

// Text is the output of one ordinary tool on a node, kept as it was printed,
// so that a diagnosis can quote it by line.
type Text struct {
	Kind TextKind `json:"kind"`
	// Ref is where it came from, for quotes: a file's path, or the command.
	Ref string `json:"ref,omitempty"`
	// Status is Done where Content holds it (perhaps empty), Failed where it
	// was tried and Why says what came back.
	Status  ReadStatus `json:"status"`
	Why     string     `json:"why,omitempty"`
	Supply  string     `json:"supply,omitempty"`
	Content string     `json:"-"`
	// Skimmed is what who read the Content learnt of it on the way, for the
	// parser of that Kind to take up (*iptables.Skim); nil mostly.
	Skimmed any `json:"-"`
}

// NodeState is what was read on one node.
type NodeState struct {
	// Name is the Node object's name; "" where a file did not say.
	Name string
	// At is when it was read; zero where a file did not say.
	At time.Time
	// Via is the kind of Input: local, node-state, exec.
	Via   string
	Texts []Text
}

// Text returns the first text of that kind; Status NotRead where there is
// none. A node may have several texts of one kind (two pasted fragments):
// see All.
func (n *NodeState) Text(k TextKind) Text {
	for _, t := range n.Texts {
		if t.Kind == k {
			return t
		}
	}
	return Text{Kind: k}
}

// All returns every text of one of the kinds, in the order in which they
// were read.
func (n *NodeState) All(kinds ...TextKind) []Text {
	var out []Text
	for _, t := range n.Texts {
		for _, k := range kinds {
			if t.Kind == k {
				out = append(out, t)
			}
		}
	}
	return out
}
