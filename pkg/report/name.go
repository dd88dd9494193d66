package report

import (
	"io"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

// Name writes service/NAME for each Service whose verdict is not ok, one a
// line, as kubectl's -o name does. An address that no Service owns has no name
// and is left out. Of an audit, where no verdict is ok, it is those for which the
// node's rules are not.
func Name(w io.Writer, r *diagnosis.Report, o Options) error {
	p := newPrinter(w, o)
	for i := range r.Services {
		s := &r.Services[i]
		if s.Verdict == diagnosis.OK || s.Namespace == "" || r.Audit && nodeStatus(s) == diagnosis.OK {
			continue
		}
		p.line("service/", Escape(s.Name))
	}
	return p.close()
}
