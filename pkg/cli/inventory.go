package cli

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vipwalk/vipwalk/pkg/cluster"
	"github.com/vipwalk/vipwalk/pkg/report"
	"github.com/vipwalk/vipwalk/pkg/walk"
)

func (a *app) inventoryCommand() *cobra.Command {
	var src sourceFlags
	var out outputFlags
	cmd := &cobra.Command{
		Use:   "inventory",
		Short: "List versions, nodes, proxies, ranges, and every VIP with its health",
		Long: "The picture to take before touching anything: which versions run, each node with the\n" +
			"proxy mode configured and seen, the ranges of Services and pods, the network and what\n" +
			"enforces policies, what gives addresses to load balancers, and every virtual IP with its\n" +
			"health. What could not be read is listed as not known, with the command that would tell.",
		Example: "  PROGRAM inventory\n" +
			"  PROGRAM inventory -n production -o wide\n" +
			"  PROGRAM inventory --objects dump/ --node-state nodes/ -o json",
		Args: a.noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			render, err := out.inventoryRenderer()
			if err != nil {
				return err
			}
			if err := src.validate(); err != nil {
				return err
			}
			if err := src.missingKubeconfig(); err != nil {
				return err
			}
			o := walk.Options{All: true, Version: programVersion()}
			if ns := src.config.Namespace; ns != nil && *ns != "" {
				o.Namespaces = []string{*ns}
			}
			// Nodes, networks and load balancers are the cluster's, whatever
			// namespace the VIPs are of.
			src.silent = out.quiet
			done := a.progress(out.quiet, "reading ...")
			s, err := a.collect(cmd.Context(), &src, cluster.Scope{All: true})
			done()
			if err != nil {
				return err
			}
			if o.Nodes, err = src.pickNodes(s); err != nil {
				return err
			}
			inv := walk.TakeInventory(s, o)
			if out.quiet {
				return nil
			}
			var buf bytes.Buffer
			if err := render(&buf, inv, a.options(&out)); err != nil {
				return fmt.Errorf("render the inventory: %w", err)
			}
			_, err = a.Out.Write(buf.Bytes())
			return err
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	src.add(fs)
	out.format = "text"
	fs.StringVarP(&out.format, "output", "o", "text", "`FORMAT`: "+strings.Join(inventoryFormats(), ", "))
	fs.BoolVar(&out.noHeaders, "no-headers", false, "no column headings in tables")
	fs.BoolVar(&out.showOK, "show-ok", false, "list every node and every VIP, however many")
	out.addShared(fs)
	return cmd
}

func inventoryFormats() []string {
	var names []string
	for _, f := range report.InventoryFormats() {
		names = append(names, f.Name)
	}
	return names
}

func (f *outputFlags) inventoryRenderer() (report.InventoryRenderer, error) {
	if err := f.validateColor(); err != nil {
		return nil, err
	}
	for _, known := range report.InventoryFormats() {
		if f.format == known.Name {
			return known.Render, nil
		}
	}
	return nil, usageErrorf("-o %q: no such format", f.format).hint("one of %s", strings.Join(inventoryFormats(), ", "))
}
