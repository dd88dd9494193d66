package walk

import (
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vipwalk/vipwalk/pkg/proxy"
)

// Target is what a user named on the command line: a Service by name, or an
// address that some Service may own.
type Target struct {
	// Text is the argument as it was typed.
	Text string
	// Namespace and Name are set for a Service by name.
	Namespace, Name string
	// Addr is set for an address.
	Addr netip.Addr
	// NodePort is set for ":30021" or "NODE:30021"; Node is then the node's
	// name or empty for any, and Port the node port.
	NodePort bool
	Node     string
	// Port is the port asked about, 0 for all. PortName likewise, "" for all.
	Port int32
	// Protocol is "" for any.
	Protocol corev1.Protocol
}

// IsAddress says whether the owner has to be looked for.
func (t Target) IsAddress() bool { return t.Addr.IsValid() || t.NodePort }

// ParseTarget reads a TARGET argument; namespace is the one in force (-n or
// the context's). The forms are listed in the interface: orders, svc/orders,
// production/orders, orders.production[.svc[.cluster.local]][:PORT],
// 10.96.120.45[:PORT[/udp]], [fd00::1]:53/udp, :30021, NODE:30021, a URL.
func ParseTarget(text, namespace string) (Target, error) {
	t := Target{Text: text}
	bad := func(why string) (Target, error) {
		return Target{}, fmt.Errorf("target %q: %s; give a Service name, namespace/name, name.namespace, an address, address:port, :NODEPORT or a URL", text, why)
	}
	rest := strings.TrimSpace(text)
	if rest == "" {
		return bad("it is empty")
	}
	if strings.Contains(rest, "://") {
		u, err := url.Parse(rest)
		if err != nil || u.Hostname() == "" {
			return bad("not a URL with a host")
		}
		port := u.Port()
		if port == "" {
			port = map[string]string{"http": "80", "https": "443", "ws": "80", "wss": "443"}[strings.ToLower(u.Scheme)]
		}
		rest = u.Hostname()
		if strings.Contains(rest, ":") {
			rest = "[" + rest + "]"
		}
		if port != "" {
			rest += ":" + port
		}
	}
	rest, proto, err := cutProtocol(rest)
	if err != nil {
		return bad(err.Error())
	}
	t.Protocol = proto

	// A bare IPv6 address has colons, but no port.
	if a, err := netip.ParseAddr(strings.Trim(rest, "[]")); err == nil {
		t.Addr = a.Unmap()
		return t, nil
	}
	host := rest
	if i := strings.LastIndexByte(rest, ':'); i >= 0 {
		port, err := strconv.ParseUint(rest[i+1:], 10, 16)
		if err != nil || port == 0 {
			return bad(fmt.Sprintf("%q is not a port", rest[i+1:]))
		}
		host, t.Port = rest[:i], int32(port)
	}
	if host == "" {
		t.NodePort = true
		return t, nil
	}
	if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		t.Addr = a.Unmap()
		return t, nil
	}
	return t.named(host, namespace, bad)
}

// named reads the part that names a Service, or a node before a node port.
func (t Target) named(host, namespace string, bad func(string) (Target, error)) (Target, error) {
	kind, name, slash := strings.Cut(host, "/")
	switch {
	case slash && isServiceWord(kind):
		t.Namespace, t.Name = namespace, name
		if ns, n, again := strings.Cut(name, "/"); again {
			t.Namespace, t.Name = ns, n
		}
	case slash:
		t.Namespace, t.Name = kind, name
	case strings.Contains(host, "."):
		parts := strings.Split(strings.TrimSuffix(host, "."), ".")
		if len(parts) > 2 && parts[2] != "svc" {
			if t.Port == 0 {
				return bad("a host name outside the cluster")
			}
			// worker-1.example.com:30021
			t.NodePort, t.Node = true, host
			return t, nil
		}
		t.Name, t.Namespace = parts[0], parts[1]
	default:
		t.Namespace, t.Name = namespace, host
	}
	if !validName(t.Name) || !validName(t.Namespace) {
		return bad("not a Kubernetes name")
	}
	// NODE:30021 looks like a Service with a port; the range of node ports
	// tells: resolving looks for the Service first (see world.resolve).
	return t, nil
}

func isServiceWord(s string) bool {
	switch strings.ToLower(s) {
	case "svc", "service", "services":
		return true
	}
	return false
}

// validName accepts what the API server accepts as a label-like name; it keeps
// typing errors and hostile input out of the commands that are printed.
func validName(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	for _, c := range []byte(s) {
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '.') {
			return false
		}
	}
	return true
}

func cutProtocol(s string) (string, corev1.Protocol, error) {
	i := strings.LastIndexByte(s, '/')
	if i < 0 {
		return s, "", nil
	}
	switch p := strings.ToUpper(s[i+1:]); p {
	case "TCP", "UDP", "SCTP":
		// "shop/udp" is a Service called udp; only after a port is it a protocol.
		if j := strings.LastIndexByte(s[:i], ':'); j >= 0 {
			return s[:i], corev1.Protocol(p), nil
		}
		return s, "", nil
	default:
		if j := strings.LastIndexByte(s[:i], ':'); j >= 0 {
			if _, err := strconv.ParseUint(s[j+1:i], 10, 16); err == nil {
				return "", "", fmt.Errorf("%q is no protocol (tcp, udp, sctp)", s[i+1:])
			}
		}
		return s, "", nil
	}
}

// wants says whether a frontend is among those that the target asks about.
func (t Target) wants(f proxy.Frontend) bool {
	if t.Protocol != "" && f.Protocol != t.Protocol {
		return false
	}
	switch {
	case t.NodePort:
		return f.Kind == proxy.NodePort && f.Port == t.Port
	case t.Addr.IsValid():
		if f.Kind == proxy.NodePort {
			return t.Node != "" && f.Port == t.Port
		}
		return f.IP == t.Addr && (t.Port == 0 || f.Port == t.Port)
	case t.Port != 0:
		return f.ServicePort == t.Port
	}
	return true
}

// portMatches says whether --port admits a Service port.
func portMatches(asked, name string, port int32) bool {
	return asked == "" || asked == name || asked == strconv.Itoa(int(port))
}
