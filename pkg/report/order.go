package report

import (
	"cmp"
	"net"
	"slices"
	"strconv"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

// worstFirst orders Services for a table: by verdict, then by name. The report
// itself keeps the order in which they were asked for.
func worstFirst(services []diagnosis.Service) []*diagnosis.Service {
	out := make([]*diagnosis.Service, len(services))
	for i := range services {
		out[i] = &services[i]
	}
	slices.SortStableFunc(out, func(a, b *diagnosis.Service) int {
		return cmp.Or(
			cmp.Compare(verdictRank(a.Verdict), verdictRank(b.Verdict)),
			cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name),
		)
	})
	return out
}

func verdictRank(s diagnosis.Status) int {
	return slices.Index([]diagnosis.Status{diagnosis.Fail, diagnosis.Unknown, diagnosis.Warn, diagnosis.OK}, s)
}

// serviceName is how text names a Service: namespace/name, or the address that
// nobody owns.
func serviceName(s *diagnosis.Service) string {
	if s.Namespace == "" {
		return Escape(s.Name)
	}
	return Escape(s.Namespace + "/" + s.Name)
}

// frontends are a Service's addresses as text, in order.
func frontends(s *diagnosis.Service) []string {
	var out []string
	for _, f := range s.Frontends {
		addr := ":" + strconv.Itoa(int(f.Port))
		if f.IP != "" {
			addr = net.JoinHostPort(f.IP, strconv.Itoa(int(f.Port)))
		}
		out = append(out, Escape(addr+"/"+f.Protocol))
	}
	return out
}

// cause is a root diagnosis with everything that follows from it.
type cause struct {
	*diagnosis.Diagnosis
	consequences []*diagnosis.Diagnosis
}

// fold puts each consequence under its root. A diagnosis whose causes are not
// in the list is a root itself, so that nothing is lost; ignored ones are left
// out.
func fold(ds []diagnosis.Diagnosis) []cause {
	present := map[diagnosis.Code]bool{}
	for i := range ds {
		if !ds[i].Ignored {
			present[ds[i].Code] = true
		}
	}
	var causes []cause
	var rest []*diagnosis.Diagnosis
	for i := range ds {
		d := &ds[i]
		switch {
		case d.Ignored:
		case slices.ContainsFunc(d.CausedBy, func(c diagnosis.Code) bool { return present[c] }):
			rest = append(rest, d)
		default:
			causes = append(causes, cause{Diagnosis: d})
		}
	}
	for _, d := range rest {
		if i := slices.IndexFunc(causes, func(c cause) bool { return reaches(ds, c.Diagnosis, d) }); i >= 0 {
			causes[i].consequences = append(causes[i].consequences, d)
			continue
		}
		causes = append(causes, cause{Diagnosis: d})
	}
	return causes
}

// reaches says whether one diagnosis leads to another, directly or through
// others.
func reaches(ds []diagnosis.Diagnosis, from, to *diagnosis.Diagnosis) bool {
	seen := map[diagnosis.Code]bool{from.Code: true}
	queue := slices.Clone(from.Causes)
	for len(queue) > 0 {
		code := queue[0]
		queue = queue[1:]
		if code == to.Code {
			return true
		}
		if seen[code] {
			continue
		}
		seen[code] = true
		for i := range ds {
			if ds[i].Code == code {
				queue = append(queue, ds[i].Causes...)
			}
		}
	}
	return false
}
