package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vipwalk/vipwalk/pkg/spelling"
)

// laterCommands are in the interface and not in this version. They are told
// apart from Services of the same name, which are given as svc/NAME.
var laterCommands = []string{"policy", "diff"}

func (a *app) rootCommand() *cobra.Command {
	root := a.walkCommand()
	root.AddCommand(
		a.traceCommand(),
		a.captureCommand(),
		a.inventoryCommand(),
		a.nodeStateCommand(),
		a.explainCommand(),
		a.demoCommand(),
		a.versionCommand(),
		a.completionCommand(),
	)
	root.SetHelpCommand(a.helpCommand())
	root.CompletionOptions.DisableDefaultCmd = true
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	root.SetIn(a.In)
	root.SetFlagErrorFunc(a.flagError)
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { a.help(cmd) })
	if a.program != pluginName {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: a.program}
	}
	return root
}

// flagError turns what the flag parser says into an error with a hint.
func (a *app) flagError(cmd *cobra.Command, err error) error {
	e := usageErrorf("%w", err)
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		if near := nearest(unknown.GetSpecifiedName(), flagNames(cmd)); near != "" && len(unknown.GetSpecifiedName()) > 1 {
			return e.hint("did you mean --%s?", near)
		}
	}
	return e.hint("`%s --help` lists the flags", cmd.CommandPath())
}

func flagNames(cmd *cobra.Command) []string {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

// noArgs is for commands that take none.
func (a *app) noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usageErrorf("%s takes no argument, got %q", cmd.Name(), args[0]).hint("`%s --help` says what it takes", cmd.CommandPath())
}

func commandNames(root *cobra.Command) []string {
	var names []string
	for _, c := range root.Commands() {
		if !c.Hidden {
			names = append(names, c.Name())
		}
	}
	return names
}

// mistyped says which command the user probably meant, where a target was
// taken for a Service's name; "" for none. A target that says more than a bare
// word was no command.
func mistyped(root *cobra.Command, targets []string) string {
	if len(targets) == 0 || strings.ContainsAny(targets[0], "/.:") || len(targets[0]) < 4 {
		return ""
	}
	near := nearest(targets[0], commandNames(root))
	if near == "" || spelling.Distance(near, targets[0]) > 2 {
		return ""
	}
	return near
}

func (a *app) helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			target, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				e := usageErrorf("no command %q", strings.Join(args, " "))
				if near := nearest(args[0], commandNames(cmd.Root())); near != "" {
					return e.hint("did you mean %s?", near)
				}
				return e
			}
			return a.help(target)
		},
	}
}

// help prints a command's help: what it does, its commands, its own flags, and
// kubectl's in a line, because everybody knows those.
func (a *app) help(cmd *cobra.Command) error {
	var b strings.Builder
	text := cmd.Long
	if text == "" {
		text = cmd.Short
	}
	fmt.Fprintf(&b, "%s\n\nUsage:\n  %s\n", text, cmd.UseLine())
	if cmd == cmd.Root() {
		fmt.Fprintf(&b, "  %s COMMAND [flags]\n", cmd.CommandPath())
	}
	if cmd.Example != "" {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", strings.ReplaceAll(cmd.Example, "PROGRAM", a.program))
	}
	if len(cmd.Commands()) > 0 {
		b.WriteString("\nCommands:\n")
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				fmt.Fprintf(&b, "  %-11s %s\n", c.Name(), c.Short)
			}
		}
	}
	own, kubectl := newFlagSet(), []string(nil)
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		switch {
		case f.Hidden:
		case slices.Contains(f.Annotations[kubectlFlag], "true"):
			kubectl = append(kubectl, "--"+f.Name)
		default:
			own.AddFlag(f)
		}
	})
	if usage := own.FlagUsages(); usage != "" {
		fmt.Fprintf(&b, "\nFlags:\n%s", usage)
	}
	if len(kubectl) > 0 {
		fmt.Fprintf(&b, "\nFlags as kubectl has them:\n%s", indentWords(kubectl, 78))
	}
	_, err := fmt.Fprint(a.Out, b.String())
	return err
}

// indentWords lays words out in lines of at most width columns.
func indentWords(words []string, width int) string {
	var b strings.Builder
	line := " "
	for _, w := range words {
		if len(line)+1+len(w) > width {
			b.WriteString(line + "\n")
			line = " "
		}
		line += " " + w
	}
	b.WriteString(line + "\n")
	return b.String()
}
