package walk

import (
	"fmt"
	"net/netip"
	"strings"
)

// ClientKind is who is calling.
type ClientKind string

const (
	// AnyPod is the default: any pod of any namespace.
	AnyPod       ClientKind = ""
	OnePod       ClientKind = "pod"
	OnNode       ClientKind = "node"
	FromAddress  ClientKind = "ip"
	FromExternal ClientKind = "external"
)

// Client is the caller that --from names.
type Client struct {
	Kind ClientKind
	// Namespace and Name of the pod, or Name of the node.
	Namespace, Name string
	Addr            netip.Addr
}

// String is how reports name the client.
func (c Client) String() string {
	switch c.Kind {
	case OnePod:
		return "pod " + c.Namespace + "/" + c.Name
	case OnNode:
		return "node " + c.Name
	case FromAddress:
		return c.Addr.String()
	case FromExternal:
		return "external"
	}
	return "any pod"
}

// ParseClient reads a --from value: "pod NAME", pod/NAME, NS/POD, node/NAME,
// an IP address, or external. Namespace is the one in force.
func ParseClient(text, namespace string) (Client, error) {
	s := strings.TrimSpace(text)
	switch s {
	case "":
		return Client{}, nil
	case "external":
		return Client{Kind: FromExternal}, nil
	}
	bad := fmt.Errorf("--from %q: give pod/NAME, NAMESPACE/POD, node/NAME, an IP address, or external", text)
	if a, ok := parseAddress(s); ok {
		if a.Zone() != "" {
			return Client{}, bad
		}
		return Client{Kind: FromAddress, Addr: a.Unmap()}, nil
	}
	kind, name, ok := strings.Cut(strings.Replace(s, " ", "/", 1), "/")
	c := Client{Kind: OnePod, Namespace: namespace, Name: strings.TrimSpace(name)}
	switch {
	case !ok:
		c.Name = kind
	case kind == "node" || kind == "nodes" || kind == "no":
		c.Kind, c.Namespace = OnNode, ""
	case kind == "pod" || kind == "pods" || kind == "po":
		if ns, n, again := strings.Cut(c.Name, "/"); again {
			c.Namespace, c.Name = ns, n
		}
	default:
		c.Namespace = kind
	}
	if !validName(c.Name) || (c.Kind == OnePod && !validLabel(c.Namespace)) {
		return Client{}, bad
	}
	return c, nil
}
