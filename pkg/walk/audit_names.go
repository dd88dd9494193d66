package walk

import (
	"strings"
)

// comment is what the writer of a rule noted beside it, as each tool prints it:
// --comment "...", /* ... */ in a listing, comment "..." of nft's.
func comment(text string) string {
	if _, rest, ok := strings.Cut(text, "--comment "); ok {
		return quoted(rest)
	}
	if _, rest, ok := strings.Cut(text, "/* "); ok {
		note, _, _ := strings.Cut(rest, " */")
		return note
	}
	if _, rest, ok := strings.Cut(text, ` comment "`); ok {
		note, _, _ := strings.Cut(rest, `"`)
		return note
	}
	return ""
}

// quoted is the word at the beginning of a text, with or without quotes.
func quoted(text string) string {
	text, escaped := strings.CutPrefix(text, `\`)
	rest, ok := strings.CutPrefix(text, `"`)
	if !ok {
		word, _, _ := strings.Cut(text, " ")
		return word
	}
	note, _, _ := strings.Cut(rest, `"`)
	if escaped {
		note = strings.TrimSuffix(note, `\`)
	}
	return note
}

// serviceOf reads "ns/name:port cluster IP" and what else kube-proxy notes; up
// to 1.19 it wrote the colon where the port has no name, too. A note that
// begins with no Service's name gives none.
func serviceOf(note string) (namespace, name, port string) {
	word, _, _ := strings.Cut(note, " ")
	namespace, rest, ok := strings.Cut(word, "/")
	if !ok {
		return "", "", ""
	}
	name, port, _ = strings.Cut(rest, ":")
	if !validLabel(namespace) || !validLabel(name) || port != "" && !validLabel(port) {
		return "", "", ""
	}
	return namespace, name, port
}

// chainHash is the part of a chain's name that stands for one port of a
// Service: KUBE-SVC-HASH, KUBE-EXT-HASH and their kin have the same.
func chainHash(chain string) string {
	for _, prefix := range serviceChains {
		if hash, ok := strings.CutPrefix(chain, prefix); ok {
			return hash
		}
	}
	return ""
}

var serviceChains = []string{"KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-XLB-", "KUBE-FW-"}

// nftServiceOf reads the name of a Service's chain in nftables mode:
// service-HASH-ns/name/protocol/port. A very long one is cut, and names none.
func nftServiceOf(chain string) (hash, namespace, name, port string) {
	for _, prefix := range []string{"service-", "local-", "external-", "firewall-"} {
		rest, ok := strings.CutPrefix(chain, prefix)
		if !ok {
			continue
		}
		hash, rest, ok = strings.Cut(rest, "-")
		parts := strings.Split(rest, "/")
		if !ok || len(parts) != 4 || !validLabel(parts[0]) || !validLabel(parts[1]) || parts[3] != "" && !validLabel(parts[3]) {
			return hash, "", "", ""
		}
		return hash, parts[0], parts[1], parts[3]
	}
	return "", "", "", ""
}
