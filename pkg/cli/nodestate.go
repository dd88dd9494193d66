package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/vipwalk/vipwalk/pkg/node"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

func (a *app) nodeStateCommand() *cobra.Command {
	format := "text"
	cmd := &cobra.Command{
		Use:   "node-state",
		Short: "Print this node's state, for --node-state elsewhere",
		Long: "Print this machine's state to standard output: its iptables rules, addresses, routes and\n" +
			"the few sysctls that matter, as the ordinary tools print them; of its connections those\n" +
			"to Services alone, and which ports its pods listen on. It changes nothing: no\n" +
			"module is loaded and no table created. `--node-state` reads it back.",
		Example: "  ssh worker-1 sudo vipwalk node-state | PROGRAM orders -n production --node-state worker-1=-",
		Args:    a.noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			write := node.WriteState
			switch format {
			case "text":
			case "json":
				write = node.WriteStateJSON
			default:
				return usageErrorf("-o %q: no such format", format).hint("one of text, json")
			}
			state, err := node.Local(cmd.Context())
			if err != nil {
				return unknownErrorf("%w", err)
			}
			return write(a.Out, state, programVersion())
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", format, "`FORMAT`: text, json")
	return cmd
}

// hostname is the machine's own name for itself, as its state has it.
func hostname(state *snapshot.NodeState) string {
	return strings.TrimSpace(state.Text(snapshot.Hostname).Content)
}
