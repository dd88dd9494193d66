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
	// Port is the port asked about, 0 for all.
	Port int32
	// Protocol is "" for any.
	Protocol corev1.Protocol
}

// IsAddress says whether the owner has to be looked for.
func (t Target) IsAddress() bool { return t.Addr.IsValid() || t.NodePort }

// ParseTarget reads a TARGET argument; namespace is the one in force (-n or
// the context's). The forms are listed in the interface: orders, svc/orders,
// production/orders, orders.production[.svc[.cluster.local]][:PORT] (a pod of a
// headless Service stands for it), 10.96.120.45[:PORT[/udp]], [fd00::1]:53/udp, :30021, NODE:30021, a URL.
func ParseTarget(text, namespace string) (Target, error) {
	t := Target{Text: withoutUserinfo(text)}
	bad := func(why string) (Target, error) {
		return Target{}, fmt.Errorf("target %q: %s; give a Service name, namespace/name, name.namespace, an address, address:port, :NODEPORT or a URL", t.Text, why)
	}
	rest := strings.TrimSpace(t.Text)
	if rest == "" {
		return bad("it is empty")
	}
	if strings.Contains(rest, "://") {
		host, ok := urlHost(rest)
		if !ok {
			return bad("not a URL with a host")
		}
		rest = host
	}
	rest, proto, err := cutProtocol(rest)
	if err != nil {
		return bad(err.Error())
	}
	t.Protocol = proto

	// A bare IPv6 address has colons, but no port.
	host, ok := parseAddress(rest)
	if ok {
		return t.address(host, bad)
	}
	name := rest
	if i := strings.LastIndexByte(rest, ':'); i >= 0 {
		port, err := strconv.ParseUint(rest[i+1:], 10, 16)
		if err != nil || port == 0 {
			return bad(fmt.Sprintf("%q is not a port (1 to 65535)", rest[i+1:]))
		}
		name, t.Port = rest[:i], int32(port)
	}
	if name == "" {
		t.NodePort = true
		return t, nil
	}
	if host, ok := parseAddress(name); ok {
		return t.address(host, bad)
	}
	return t.named(name, namespace, bad)
}

// withoutUserinfo takes the user and password out of a URL: what is typed is
// quoted in reports.
func withoutUserinfo(text string) string {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return text
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	return scheme + "://" + rest[strings.LastIndexByte(rest[:end], '@')+1:]
}

// urlHost is a URL's HOST:PORT, with the port that the scheme implies.
func urlHost(text string) (string, bool) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return "", false
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443", "ws": "80", "wss": "443"}[strings.ToLower(u.Scheme)]
	}
	host := strings.ToLower(u.Hostname())
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port != "" {
		host += ":" + port
	}
	return host, true
}

// parseAddress reads an address, also one in brackets.
func parseAddress(s string) (netip.Addr, bool) {
	if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		s = s[1 : len(s)-1]
	}
	a, err := netip.ParseAddr(s)
	return a, err == nil
}

func (t Target) address(a netip.Addr, bad func(string) (Target, error)) (Target, error) {
	if a.Zone() != "" {
		return bad("an address with a zone is one link's, and no Service's")
	}
	t.Addr = a.Unmap()
	return t, nil
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
		// Names in DNS know no case, and may end in a dot.
		return t.dotted(strings.TrimSuffix(strings.ToLower(host), "."), namespace, bad)
	default:
		t.Namespace, t.Name = namespace, host
	}
	if !validLabel(t.Name) || !validLabel(t.Namespace) {
		return bad("not a Kubernetes name (a-z, 0-9 and -, at most 63)")
	}
	// NODE:30021 looks like a Service with a port; the range of node ports
	// tells: resolving looks for the Service first (see world.resolve).
	return t, nil
}

// dotted reads a name of the cluster's DNS: name.namespace, with .svc and the
// cluster's domain or without; or else a node's name before a node port.
func (t Target) dotted(host, namespace string, bad func(string) (Target, error)) (Target, error) {
	parts := strings.Split(host, ".")
	switch {
	case len(parts) == 1:
		t.Name, t.Namespace = host, namespace
	case len(parts) == 2 || parts[2] == "svc":
		t.Name, t.Namespace = parts[0], parts[1]
	case len(parts) > 3 && parts[3] == "svc":
		// A pod of a headless Service: web-0.web.shop.svc.
		t.Name, t.Namespace = parts[1], parts[2]
	case parts[2] == "pod":
		return bad("a pod's name in DNS, and no Service's")
	case t.Port == 0:
		return bad("a host name outside the cluster")
	case !validName(host):
		return bad("not a Kubernetes name")
	default:
		t.NodePort, t.Node = true, host // worker-1.example.com:30021
		return t, nil
	}
	if !validLabel(t.Name) || !validLabel(t.Namespace) {
		return bad("not a Kubernetes name (a-z, 0-9 and -, at most 63)")
	}
	return t, nil
}

func isServiceWord(s string) bool {
	switch strings.ToLower(s) {
	case "svc", "service", "services":
		return true
	}
	return false
}

// validName accepts what the API server accepts as a name of most objects (RFC
// 1123 subdomain); it keeps typing errors and hostile input out of the commands
// that are printed.
func validName(s string) bool {
	if len(s) > 253 {
		return false
	}
	for part := range strings.SplitSeq(s, ".") {
		if !validLabel(part) {
			return false
		}
	}
	return true
}

// validLabel accepts what the API server accepts as the name of a Service or
// a namespace (RFC 1123 label).
func validLabel(s string) bool {
	if s == "" || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for _, c := range []byte(s) {
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-') {
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
