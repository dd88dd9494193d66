package snapshot

import (
	"strings"
	"unicode/utf8"

	"github.com/vipwalk/vipwalk/pkg/lazyregexp"
)

// maxText is the longest message that is kept, in bytes. Kubernetes' own limit
// for an event's note is 1 KiB; conditions may be longer.
const maxText = 1024

// redacted stands where something was left out.
const redacted = "REDACTED"

var (
	userinfo = lazyregexp.New(`://[^/\s"'@]+@`)
	query    = lazyregexp.New(`(https?://[^\s"'?]*)\?[^\s"']*`)
	bearer   = lazyregexp.New(`(?i)\b(bearer|basic)(\s+)[A-Za-z0-9._~+/=-]{8,}`)
	keyed    = lazyregexp.New(`(?i)\b([a-z0-9_-]*(?:password|passwd|secret|token|apikey|api[_-]key|access[_-]?key|credentials?)[a-z0-9_-]*)(=)("[^"]*"|'[^']*'|[^\s,;&"']+)`)
	jwt      = lazyregexp.New(`\beyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.?[A-Za-z0-9_-]*`)
)

// RedactText takes the credentials that a component may have put into a
// message out of it (the user part and the query of a URL, bearer tokens,
// password=...), and cuts it to 1 KiB. It is a second line of defence: fields
// that are meant for secrets never get as far.
func RedactText(s string) string {
	s = userinfo.ReplaceAllString(s, "://"+redacted+"@")
	s = query.ReplaceAllString(s, "${1}?"+redacted)
	s = bearer.ReplaceAllString(s, "${1}${2}"+redacted)
	s = keyed.ReplaceAllString(s, "${1}${2}"+redacted)
	s = jwt.ReplaceAllString(s, redacted)
	return truncate(s)
}

// truncate cuts at a rune's boundary, so that the text survives JSON as it is.
func truncate(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= maxText {
		return s
	}
	const mark = "..."
	cut := maxText - len(mark)
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + mark
}

func redactPath(path string) string {
	if p, _, ok := strings.Cut(path, "?"); ok {
		return p + "?" + redacted
	}
	return path
}

// probeReply are the kubelet's own words after "probe failed: "; what else
// stands there is what an exec probe printed, or a body.
var probeReply = lazyregexp.New(`^(HTTP probe failed with statuscode: \d+|Get "|Head "|dial |service unhealthy|timeout:|failed to connect|error: |rpc error|command timed out|command ".*" timed out|` + notKept + `)`)

const notKept = "(the probe's output is not kept)"

// redactMessage redacts a message whose reason tells that it repeats a hook's
// command, or a probe's output.
func redactMessage(reason, message string) string {
	switch reason {
	case "PostStartHookError", "FailedPostStartHook", "FailedPreStopHook":
		return ""
	case "Unhealthy", "ProbeWarning":
		for _, sep := range []string{"probe failed: ", "probe errored: ", "probe warning: "} {
			head, tail, ok := strings.Cut(message, sep)
			if !ok {
				continue
			}
			return RedactText(head + sep + probeOutput(tail))
		}
		return ""
	}
	return RedactText(message)
}

func probeOutput(tail string) string {
	if strings.HasPrefix(tail, "command ") {
		return "command timed out"
	}
	if probeReply.MatchString(tail) {
		return tail
	}
	return notKept
}
