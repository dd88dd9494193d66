package cli

import (
	"github.com/vipwalk/vipwalk/pkg/snapshot"
	"github.com/vipwalk/vipwalk/pkg/walk"
)

// auditOptions settles what is asked of an audit: of rules alone, without an
// API and without objects. Rules know nothing of labels; names they have only
// as notes beside them, so that a namespace has to be asked for by -n.
func (f *walkFlags) auditOptions(s *snapshot.Snapshot, o *walk.Options) error {
	if !o.All || !walk.RulesAlone(s) {
		return nil
	}
	switch {
	case f.selector != "":
		return usageErrorf("-l %s: only a node's rules were read, and these know nothing of labels", f.selector).
			hint("-A walks every VIP that the rules name; -n NAMESPACE and --port narrow that down").
			hint("with the objects: --objects PATH, or a kubeconfig")
	case !f.allNamespaces:
		return usageErrorf("--all: only a node's rules were read, and no Services").
			hint("-A walks every VIP that the rules name, -A -n NAMESPACE those that are named so").
			hint("with the objects: --objects PATH, or a kubeconfig")
	}
	if ns := f.config.Namespace; ns != nil && *ns != "" {
		o.Namespaces = []string{*ns}
	}
	return nil
}
