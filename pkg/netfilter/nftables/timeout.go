package nftables

import (
	"strconv"
	"strings"
	"time"
)

// Timeouts are how long elements of the named sets stay, by the set's name, of
// every set in the tables of that name that has a timeout for all of its
// elements: what nft prints as "timeout 3h", or in JSON as seconds. nil where
// the text has no such table, or is none of nft's.
func Timeouts(text, table string) map[string]time.Duration {
	if strings.TrimSpace(text) == "" || !strings.Contains(text, table) {
		return nil
	}
	d := &document{text: text, byKey: map[tableKey]*tableIndex{}}
	index := d.indexText
	if looksJSON(text) {
		d.json = true
		index = d.indexJSON
	}
	if index() != nil {
		return nil
	}
	out := map[string]time.Duration{}
	for _, t := range d.tables {
		if t.name != table {
			continue
		}
		for name, s := range t.sets {
			if length, ok := s.timeoutOf(); ok {
				out[name] = length
			}
		}
	}
	return out
}

func (s *set) timeoutOf() (time.Duration, bool) {
	doc := s.table.doc
	if !doc.json {
		return readDuration(s.timeout)
	}
	var n node
	r := jsonReader{text: doc.text, at: int(s.at)}
	if !r.value(&n) {
		return 0, false
	}
	of := &n
	if inner := n.get("set"); inner != nil {
		of = inner
	}
	seconds := of.get("timeout")
	if seconds == nil {
		return 0, false
	}
	sec, err := strconv.ParseUint(seconds.text, 10, 32)
	return time.Duration(sec) * time.Second, err == nil
}

// readDuration reads a time as nft prints it: 1d2h3m4s5ms, the parts that are there.
func readDuration(text string) (time.Duration, bool) {
	text = strings.Trim(text, " ;\t")
	days, rest, ok := strings.Cut(text, "d")
	if !ok {
		days, rest = "0", text
	}
	n, err := strconv.ParseUint(days, 10, 16)
	if err != nil {
		return 0, false
	}
	length := time.Duration(n) * 24 * time.Hour
	if rest == "" {
		return length, ok
	}
	part, err := time.ParseDuration(rest)
	return length + part, err == nil
}
