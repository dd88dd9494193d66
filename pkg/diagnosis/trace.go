package diagnosis

// TraceReport is one packet walked through one node's state: what
// `vipwalk trace -o json` prints. docs/schema/tracereport.json is its schema.
type TraceReport struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // TraceReport
	Packet     Packet `json:"packet"`
	// Outcomes are all the ways in which the packet may end; their
	// probabilities sum to 1.
	Outcomes []Outcome `json:"outcomes"`
}

// Packet is the first packet of a connection as it enters the node.
type Packet struct {
	From     string `json:"from"`     // source address
	To       string `json:"to"`       // destination address:port
	Protocol string `json:"protocol"` // tcp, udp, sctp
	// In is the interface it arrives on, where that was said.
	In string `json:"in,omitempty"`
	// LocalProcess: sent by a process on the node, so it enters at OUTPUT and
	// not at PREROUTING.
	LocalProcess bool `json:"localProcess"`
}
