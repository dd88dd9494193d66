package diagnosis

import "time"

// Inventory is the picture of a cluster as far as Services go: what
// `vipwalk inventory -o json` prints. docs/schema/inventory.json is its schema.
// What is not known is an empty string or list, and stands in Missing.
type Inventory struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"` // Inventory
	Tool       Tool      `json:"tool"`
	TakenAt    time.Time `json:"takenAt"`
	Inputs     []Input   `json:"inputs"`

	Versions     Versions `json:"versions"`
	ProxyMode    Fact     `json:"proxyMode"`    // as configured
	ServiceCIDRs []Fact   `json:"serviceCIDRs"` // value is a range
	PodCIDRs     []Fact   `json:"podCIDRs"`
	// PodsRead: the pods of all namespaces were read. Without them, no network and
	// no load balancer found means nothing.
	PodsRead     bool            `json:"podsRead"`
	Networks     []Fact          `json:"networks"` // CNI plugins whose agents run
	PolicyEngine Fact            `json:"policyEngine"`
	LoadBalancer []Fact          `json:"loadBalancers"` // what gives addresses to Services
	Nodes        []InventoryNode `json:"nodes"`
	VIPs         []InventoryVIP  `json:"vips"`
	Missing      []Missing       `json:"missing"`
}

// Fact is a value, and where it was read.
type Fact struct {
	Value  string `json:"value"`
	Source string `json:"source"`
}

// Versions are the releases that run, each with on how many nodes.
type Versions struct {
	APIServer []VersionCount `json:"apiServer"`
	Kubelet   []VersionCount `json:"kubelet"`
	Proxy     []VersionCount `json:"proxy"`
}

// VersionCount is a release, and how many run it.
type VersionCount struct {
	Version string `json:"version"`
	Count   int    `json:"count"`
}

// InventoryNode is one node.
type InventoryNode struct {
	Name      string   `json:"name"`
	Ready     string   `json:"ready"` // True, False, Unknown; "" where the Node was not read
	Addresses []string `json:"addresses"`
	PodCIDRs  []string `json:"podCIDRs"`
	Kubelet   string   `json:"kubelet"`
	Kernel    string   `json:"kernel"`
	// Proxy is what programs Services there: kube-proxy with its version, or
	// what stands in for it.
	Proxy string `json:"proxy"`
	// ModeSeen is the mode that the node's state shows; "" where it was not read.
	ModeSeen string `json:"modeSeen"`
	// StateRead: the node's own state was among the input.
	StateRead bool `json:"stateRead"`
}

// InventoryVIP is one Service that has a virtual IP, and its health.
type InventoryVIP struct {
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	Type      string          `json:"type"`
	Frontends []Frontend      `json:"frontends"`
	Verdict   Status          `json:"verdict"`
	Layers    []InventoryTier `json:"layers"`
	Diagnoses []Code          `json:"diagnoses"` // roots only
}

// InventoryTier is how one layer came out.
type InventoryTier struct {
	Layer  Layer  `json:"layer"`
	Status Status `json:"status"`
}
