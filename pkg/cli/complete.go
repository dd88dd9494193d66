package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

// completeWalk sets what a shell offers for the flags whose values are known
// without asking anybody.
func (a *app) completeWalk(cmd *cobra.Command) {
	fixed := map[string][]string{
		"output":  {"text", "wide", "json", "yaml", "name", "jsonpath="},
		"fail-on": {"error", "warning", "info", "never"},
		"require": {"1,2", "1,2,3", "1,2,3,4"},
		"color":   {"auto", "always", "never"},
		"local":   {"auto", "true", "false"},
		"from":    {"external", "pod/", "node/"},
		"nodes":   {"all"},
	}
	for flag, values := range fixed {
		register(cmd, flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	register(cmd, "ignore", func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		var out []string
		for _, e := range diagnosis.Catalogue {
			if strings.HasPrefix(string(e.Code), strings.ToUpper(typed)) {
				out = append(out, string(e.Code)+"\t"+e.Title)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	})
	cmd.ValidArgsFunction = cobra.NoFileCompletions
}

// register cannot fail but for a flag that the command lacks, which a test
// would show.
func register(cmd *cobra.Command, flag string, f cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic(err)
	}
}
