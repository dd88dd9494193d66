package proxy

import (
	"net/netip"
	"strconv"
	"strings"
)

// ParseAddr parses an address as kube-proxy does (netutils.ParseIPSloppy):
// leading zeros of an IPv4 byte are decimal, because old API servers admitted
// them, and an IPv4-mapped IPv6 address is IPv4. A zone is not admitted.
func ParseAddr(s string) (netip.Addr, bool) {
	if ip, err := netip.ParseAddr(s); err == nil && ip.Zone() == "" {
		return ip.Unmap(), true
	}
	bytes := strings.Split(s, ".")
	if len(bytes) != 4 {
		return netip.Addr{}, false
	}
	for i, b := range bytes {
		if len(b) > 1 {
			if b = strings.TrimLeft(b, "0"); b == "" {
				b = "0"
			}
		}
		bytes[i] = b
	}
	ip, err := netip.ParseAddr(strings.Join(bytes, "."))
	return ip, err == nil && ip.Is4()
}

// parsePrefix parses a CIDR as kube-proxy does (netutils.ParseCIDRSloppy):
// surrounding blanks are trimmed, the host's bits are ignored, leading zeros
// are decimal.
func parsePrefix(s string) (netip.Prefix, bool) {
	addr, length, ok := strings.Cut(strings.TrimSpace(s), "/")
	ip, valid := ParseAddr(addr)
	bits, err := strconv.ParseUint(length, 10, 8)
	if !ok || !valid || err != nil {
		return netip.Prefix{}, false
	}
	p, err := ip.Prefix(int(bits))
	return p, err == nil
}
