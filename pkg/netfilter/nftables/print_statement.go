package nftables

import "strings"

func (p *printer) counter(m *node) {
	p.words("counter")
	switch {
	case m.kind == '"':
		p.words("name", `"`+m.text+`"`)
	case m.get("packets") != nil:
		p.words("packets", m.str("packets"), "bytes", m.str("bytes"))
	}
}

func (p *printer) log(m *node) {
	p.words("log")
	if v := m.get("prefix"); v != nil {
		p.words("prefix", `"`+v.text+`"`)
	}
	for _, key := range []string{"group", "snaplen", "queue-threshold", "level"} {
		if v := m.str(key); v != "" {
			p.words(key, v)
		}
	}
	if f := m.get("flags"); f != nil {
		p.words("flags")
		for _, flag := range strings.Split(listed(f), ",") {
			switch {
			case strings.HasPrefix(flag, "tcp "), strings.HasPrefix(flag, "ip "):
				p.words(strings.Split(flag, " ")...)
			default:
				p.words(flag)
			}
		}
	}
}

// listed joins a list of strings, or is the one string.
func listed(n *node) string {
	if n == nil {
		return ""
	}
	if n.kind != '[' {
		return n.text
	}
	parts := make([]string, len(n.kids))
	for i := range n.kids {
		parts[i] = n.kids[i].text
	}
	return strings.Join(parts, ",")
}

func (p *printer) limit(m *node) {
	over := ""
	if inv := m.get("inv"); inv != nil && inv.kind == 't' {
		over = "over"
	}
	switch m.key {
	case "limit":
		if m.kind == '"' {
			p.words("limit", "name", `"`+m.text+`"`)
			return
		}
		rate, unit := m.str("rate"), m.str("rate_unit")
		if unit == "packets" {
			unit = ""
		}
		if unit != "" {
			unit += "/" + m.str("per")
		} else {
			rate += "/" + m.str("per")
		}
		p.words("limit", "rate", over, rate, unit)
		burst := m.str("burst")
		bunit := m.str("burst_unit")
		if burst != "" && burst != "0" && !(burst == "5" && unit == "") {
			if bunit == "" {
				bunit = "packets"
			}
			p.words("burst", burst, bunit)
		}
	case "quota":
		if m.kind == '"' {
			p.words("quota", "name", `"`+m.text+`"`)
			return
		}
		p.words("quota", over, m.str("val"), m.str("val_unit"))
		if used := m.str("used"); used != "" && used != "0" {
			p.words("used", used, m.str("used_unit"))
		}
	case "ct count":
		p.words("ct count", over, m.str("val"))
	case "last":
		p.words("last")
		if used := m.str("used"); used != "" {
			p.words("used", used)
		}
	}
}

// reject leaves out what nft leaves out: the kind that is sent anyway.
func (p *printer) reject(m *node) {
	kind, expr := m.str("type"), m.str("expr")
	switch {
	case kind == "":
		p.words("reject")
	case kind == "tcp reset":
		p.words("reject", "with", "tcp", "reset")
	case expr == "port-unreachable":
		p.words("reject")
	default:
		p.words("reject", "with", kind, expr)
	}
}

func (p *printer) nat(m *node) {
	p.words(m.key, m.str("family"))
	addr, port := m.get("addr"), m.get("port")
	if addr != nil || port != nil {
		p.words("to")
	}
	if addr != nil {
		v6 := port != nil && addr.kind == '"' && strings.Contains(addr.text, ":")
		if v6 {
			p.words("[")
			p.bare = true
		}
		p.expr(addr, "")
		if v6 {
			p.glue("]")
		}
	}
	if port != nil {
		if addr == nil {
			p.words(":")
		} else {
			p.glue(":")
		}
		p.bare = true
		p.expr(port, "")
	}
	if f := listed(m.get("flags")); f != "" {
		p.words(f)
	}
	if f := listed(m.get("type_flags")); strings.Contains(f, "prefix") {
		p.fail("NAT of whole networks is not followed")
	}
}

func (p *printer) setStatement(m *node) {
	p.words(m.str("op"), m.str("set"), "{")
	p.expr(m.get("elem"), "")
	if s := m.get("stmt"); s != nil && s.kind == '[' {
		for i := range s.kids {
			p.statement(&s.kids[i])
		}
	}
	if data := m.get("data"); data != nil {
		p.words(":")
		p.expr(data, "")
	}
	p.words("}")
}

func (p *printer) queue(m *node) {
	p.words("queue")
	flags := listed(m.get("flags"))
	if flags != "" {
		p.words("flags", flags)
	}
	if num := m.get("num"); num != nil {
		if flags != "" {
			p.words("to")
		} else {
			p.words("num")
		}
		p.expr(num, "")
	}
}
