package report

import (
	"io"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

// Name writes service/NAME for each Service whose verdict is not ok, one a
// line, as kubectl's -o name does. An address that no Service owns has no name
// and is left out.
func Name(w io.Writer, r *diagnosis.Report, o Options) error {
	p := newPrinter(w, o)
	for _, s := range r.Services {
		if s.Verdict == diagnosis.OK || s.Namespace == "" {
			continue
		}
		p.line("service/", Escape(s.Name))
	}
	return p.close()
}
