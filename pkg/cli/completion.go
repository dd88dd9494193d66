package cli

import (
	"io"

	"github.com/spf13/cobra"
)

func (a *app) completionCommand() *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print the completion script for bash, zsh, fish or powershell",
		Long: "Print a shell's completion script. For bash:\n\n" +
			"  source <(vipwalk completion bash)\n\n" +
			"For `kubectl vipwalk`, kubectl asks an executable named kubectl_complete-vipwalk:\n" +
			"link this program to that name somewhere on $PATH.",
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageErrorf("completion takes one shell").hint("one of bash, zsh, fish, powershell")
			}
			return writeCompletion(cmd.Root(), args[0], a.Out)
		},
	}
}

func writeCompletion(root *cobra.Command, shell string, w io.Writer) error {
	switch shell {
	case "bash":
		return root.GenBashCompletionV2(w, true)
	case "zsh":
		return root.GenZshCompletion(w)
	case "fish":
		return root.GenFishCompletion(w, true)
	case "powershell":
		return root.GenPowerShellCompletionWithDesc(w)
	}
	return usageErrorf("no completion for shell %q", shell).hint("one of bash, zsh, fish, powershell")
}
