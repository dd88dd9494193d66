package cilium

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/pkg/lazyregexp"
)

// mostProblems bounds how many lines are told of.
const mostProblems = 100

var (
	// listHeader is the head of `cilium-dbg service list`, mapHeader that of
	// `cilium-dbg bpf lb list`.
	listHeader = lazyregexp.New(`(?m)^ID\s+Frontend\s+Service Type\s+Backend`)
	mapHeader  = lazyregexp.New(`(?m)^SERVICE ADDRESS\s+BACKEND ADDRESS`)
	// jsonList and jsonMap are how the JSON forms begin.
	jsonList = lazyregexp.New(`^\s*\[\s*\{\s*"(spec|status)"\s*:`)
	jsonMap  = lazyregexp.New(`^\s*\{\s*"[0-9a-fA-F.:\[\]]+:\d+(/[A-Za-z]+)?(/i)?( \(\d+\))?"\s*:\s*\[`)
)

// Recognise says whether a text begins as one of the forms does.
func Recognise(text string) bool {
	head := text[:min(len(text), 4096)]
	return listHeader.MatchString(head) || mapHeader.MatchString(head) || jsonList.MatchString(head) || jsonMap.MatchString(head)
}

// ErrUnknownForm is for a text in none of the forms.
var ErrUnknownForm = errors.New("neither the output of `cilium-dbg service list` nor that of `cilium-dbg bpf lb list`")

// Parse reads one text; source names it in quotes. A line that is not
// understood is left out and told of. An error is for a text in none of the
// forms, or for JSON that is broken.
func Parse(text, source string) (*Services, []Problem, error) {
	p := &parser{services: &Services{Source: source}}
	var err error
	switch trimmed := strings.TrimSpace(text); {
	case listHeader.MatchString(text):
		p.table(text)
	case mapHeader.MatchString(text):
		p.maps(text)
	case strings.HasPrefix(trimmed, "["):
		err = p.jsonList(text)
	case jsonMap.MatchString(text) || trimmed == "{}":
		err = p.jsonMap(text)
	default:
		return nil, nil, ErrUnknownForm
	}
	if err != nil {
		return nil, nil, err
	}
	p.services.index()
	return p.services, p.problems, nil
}

type parser struct {
	services *Services
	problems []Problem
}

func (p *parser) problem(line int, format string, args ...any) {
	if len(p.problems) < mostProblems {
		p.problems = append(p.problems, Problem{line, fmt.Sprintf(format, args...)})
	}
}

// table reads the rows of `service list`: "ID FRONTEND TYPE N => BACKEND
// (STATE)", and for each further backend a row that begins with its number.
func (p *parser) table(text string) {
	n, begun := 0, false
	var cur *Frontend
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimRight(line, "\r\n ")
		if !begun {
			begun = listHeader.MatchString(line)
			continue
		}
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if at := slices.Index(f, "=>"); at != 1 {
			if cur = p.tableFrontend(n, line, f); cur == nil {
				continue
			}
			if f = f[3:]; len(f) == 0 {
				continue // without a backend
			}
		}
		if cur == nil {
			p.problem(n, "a backend without a frontend")
			continue
		}
		p.tableBackend(n, line, f, cur)
	}
}

func (p *parser) tableFrontend(n int, line string, f []string) *Frontend {
	if len(f) < 3 {
		p.problem(n, "expected ID FRONTEND TYPE, got %d words", len(f))
		return nil
	}
	addr, protocol, internal, err := endpoint(f[1])
	if _, ok := atoi(f[0]); !ok || err != nil {
		p.problem(n, "expected ID FRONTEND TYPE: %v", err)
		return nil
	}
	p.services.Frontends = append(p.services.Frontends, Frontend{
		Addr: addr, Protocol: protocol, Internal: internal, Type: f[2], Line: n, Text: strings.TrimSpace(line),
	})
	return &p.services.Frontends[len(p.services.Frontends)-1]
}

func (p *parser) tableBackend(n int, line string, f []string, to *Frontend) {
	if len(f) < 3 || f[1] != "=>" {
		p.problem(n, "expected N => BACKEND")
		return
	}
	addr, _, _, err := endpoint(f[2])
	if err != nil {
		p.problem(n, "%v", err)
		return
	}
	b := Backend{Addr: addr, Weight: 100, Line: n, Text: strings.TrimSpace(line)}
	for _, word := range f[3:] {
		switch state := strings.Trim(word, "(),"); state {
		case "active", "terminating", "quarantined", "maintenance":
			b.State = state
		}
	}
	to.Backends = append(to.Backends, b)
}

// mapEntry is one entry of the map of Services: "(REVNAT_ID) (SLOT) [FLAGS]"
// stand behind the address of the backend, and slot 0 is the frontend itself.
var mapEntry = lazyregexp.New(`^(\S+) \(\d+\)(?: \((\d+)\))?(?:\s+\[(.*)\])?$`)

// maps reads the rows of `bpf lb list`. The rows of one frontend are in any
// order; up to 1.13 only the first has its address.
func (p *parser) maps(text string) {
	n, begun, key := 0, false, ""
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimRight(line, "\r\n ")
		if !begun {
			begun = mapHeader.MatchString(line)
			continue
		}
		if strings.TrimSpace(line) == "" {
			continue
		}
		value := strings.TrimSpace(line)
		if line[0] != ' ' && line[0] != '\t' {
			first, rest, _ := strings.Cut(line, " ")
			rest = strings.TrimSpace(rest)
			if slot, more, ok := strings.Cut(rest, " "); ok && strings.HasPrefix(slot, "(") {
				rest = strings.TrimSpace(more)
			}
			key, value = first, rest
		}
		p.mapRow(n, strings.TrimSpace(line), key, value)
	}
}

func (p *parser) mapRow(n int, line, key, value string) {
	addr, protocol, internal, err := endpoint(key)
	if err != nil {
		p.problem(n, "%v", err)
		return
	}
	m := mapEntry.FindStringSubmatch(value)
	if m == nil {
		p.problem(n, "expected BACKEND (REVNAT_ID) (SLOT)")
		return
	}
	f := p.frontend(Frontend{Addr: addr, Protocol: protocol, Internal: internal, Line: n, Text: line})
	if m[3] != "" {
		f.Type, _, _ = strings.Cut(m[3], ",")
		f.Line, f.Text = n, line
	}
	if m[2] == "0" || m[3] != "" {
		return
	}
	to, _, _, err := endpoint(m[1])
	switch {
	case err != nil:
		p.problem(n, "%v", err)
	case to.Addr().IsUnspecified():
	default:
		f.Backends = append(f.Backends, Backend{Addr: to, Weight: 100, Line: n, Text: line})
	}
}

// frontend is the entry of a frontend's address, made where there is none.
func (p *parser) frontend(f Frontend) *Frontend {
	s := p.services
	if s.byAddr == nil {
		s.byAddr = map[netip.AddrPort][]int{}
	}
	for _, i := range s.byAddr[f.Addr] {
		if have := &s.Frontends[i]; have.Protocol == f.Protocol && have.Internal == f.Internal {
			return have
		}
	}
	s.byAddr[f.Addr] = append(s.byAddr[f.Addr], len(s.Frontends))
	s.Frontends = append(s.Frontends, f)
	return &s.Frontends[len(s.Frontends)-1]
}

// service is the part that is read of api/v1/models.Service.
type service struct {
	Spec   *spec `json:"spec"`
	Status *struct {
		Realized *spec `json:"realized"`
	} `json:"status"`
}

type spec struct {
	Frontend *struct {
		IP       string `json:"ip"`
		Port     uint16 `json:"port"`
		Protocol string `json:"protocol"`
		Scope    string `json:"scope"`
	} `json:"frontend-address"`
	Backends []struct {
		IP     string  `json:"ip"`
		Port   *uint16 `json:"port"`
		State  string  `json:"state"`
		Weight *int    `json:"weight"`
	} `json:"backend-addresses"`
	Flags *struct {
		Type string `json:"type"`
	} `json:"flags"`
}

// jsonList reads a list of Services. What the agent has realized counts, not
// what it was asked for.
func (p *parser) jsonList(text string) error {
	dec := json.NewDecoder(strings.NewReader(text))
	if _, err := dec.Token(); err != nil {
		return jsonError(text, err)
	}
	line, at := 1, int64(0)
	for dec.More() {
		from := dec.InputOffset()
		line += strings.Count(text[at:from], "\n")
		at = from
		lead := text[from:]
		begins := line + strings.Count(lead[:len(lead)-len(strings.TrimLeft(lead, " \t\r\n,"))], "\n")
		var s service
		if err := dec.Decode(&s); err != nil {
			return jsonError(text, err)
		}
		of := s.Spec
		if s.Status != nil && s.Status.Realized != nil {
			of = s.Status.Realized
		}
		p.jsonService(begins, of)
	}
	if _, err := dec.Token(); err != nil {
		return jsonError(text, err)
	}
	return nil
}

func (p *parser) jsonService(line int, s *spec) {
	if s == nil || s.Frontend == nil {
		p.problem(line, "a Service without a frontend-address")
		return
	}
	addr, err := netip.ParseAddr(s.Frontend.IP)
	if err != nil {
		p.problem(line, "frontend-address: %v", err)
		return
	}
	f := Frontend{
		Addr: netip.AddrPortFrom(addr.Unmap(), s.Frontend.Port), Protocol: strings.ToUpper(s.Frontend.Protocol),
		Internal: s.Frontend.Scope == "internal", Line: line,
	}
	if f.Protocol == "NONE" {
		f.Protocol = ""
	}
	if s.Flags != nil {
		f.Type = s.Flags.Type
	}
	f.Text = strings.TrimSpace(frontendText(&f) + " " + f.Type)
	for i, b := range s.Backends {
		to, err := netip.ParseAddr(b.IP)
		if err != nil {
			p.problem(line, "backend-addresses: %v", err)
			continue
		}
		back := Backend{State: b.State, Weight: 100, Line: line}
		port := f.Addr.Port()
		if b.Port != nil {
			port = *b.Port
		}
		if b.Weight != nil {
			back.Weight = *b.Weight
		}
		back.Addr = netip.AddrPortFrom(to.Unmap(), port)
		back.Text = row(&f, i+1, back)
		f.Backends = append(f.Backends, back)
	}
	p.services.Frontends = append(p.services.Frontends, f)
}

// jsonMap reads the map of Services as JSON: for each address the values of its
// slots.
func (p *parser) jsonMap(text string) error {
	dec := json.NewDecoder(strings.NewReader(text))
	if _, err := dec.Token(); err != nil {
		return jsonError(text, err)
	}
	line, at := 1, int64(0)
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return jsonError(text, err)
		}
		line += strings.Count(text[at:dec.InputOffset()], "\n")
		at = dec.InputOffset()
		var values []string
		if err := dec.Decode(&values); err != nil {
			return jsonError(text, err)
		}
		name, _ := token.(string)
		key, _, _ := strings.Cut(name, " ")
		for _, v := range values {
			p.mapRow(line, name+" "+v, key, v)
		}
	}
	if _, err := dec.Token(); err != nil {
		return jsonError(text, err)
	}
	return nil
}

// jsonError says on which line JSON is broken.
func jsonError(text string, err error) error {
	offset := int64(len(text))
	var syntax *json.SyntaxError
	var typed *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		offset = min(syntax.Offset, offset)
	case errors.As(err, &typed):
		offset = min(typed.Offset, offset)
	}
	return fmt.Errorf("line %d: Cilium's list of Services as JSON: %w", 1+bytes.Count([]byte(text[:max(offset, 0)]), []byte("\n")), err)
}
