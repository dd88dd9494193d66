package walk

import (
	"slices"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

// fold links each diagnosis to those that explain it, by what the checks
// declare. ds and fs run in parallel. A milder diagnosis does not explain a
// graver one away: an info may be a cause only of infos.
func fold(ds []diagnosis.Diagnosis, fs []*finding) {
	for i := range ds {
		if ds[i].Ignored {
			continue
		}
		for j := range ds {
			if i == j || ds[i].Code == ds[j].Code || !explains(fs[i], fs[j].code) {
				continue
			}
			if ds[i].Severity.Rank() < ds[j].Severity.Rank() || !sameNode(ds[i], ds[j]) {
				continue
			}
			if explains(fs[j], fs[i].code) && j < i {
				continue // two that name each other: the earlier is the cause
			}
			ds[i].Causes = addCode(ds[i].Causes, ds[j].Code)
			ds[j].CausedBy = addCode(ds[j].CausedBy, ds[i].Code)
		}
	}
}

// sameNode says whether a diagnosis may explain another as far as nodes go:
// one about a node explains nothing on another node, nor anything that is not
// about a node.
func sameNode(cause, effect diagnosis.Diagnosis) bool {
	return cause.Subject.Node == "" || cause.Subject.Node == effect.Subject.Node
}

func explains(f *finding, code diagnosis.Code) bool {
	return slices.Contains(f.by.Explains, code) || slices.Contains(f.Explains, code)
}

func addCode(cs []diagnosis.Code, c diagnosis.Code) []diagnosis.Code {
	if slices.Contains(cs, c) {
		return cs
	}
	cs = append(cs, c)
	slices.Sort(cs)
	return cs
}
