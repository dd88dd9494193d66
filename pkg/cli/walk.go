package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
	"github.com/vipwalk/vipwalk/pkg/report"
	"github.com/vipwalk/vipwalk/pkg/walk"
)

// walkFlags are the flags of the walk itself, the root command.
type walkFlags struct {
	sourceFlags
	choiceFlags
	verdictFlags
	outputFlags
	wait    time.Duration
	version bool
}

func (a *app) walkCommand() *cobra.Command {
	f := &walkFlags{}
	cmd := &cobra.Command{
		Use:   "vipwalk [TARGET...] [flags]",
		Short: "Walk a Service's virtual IP the way a packet does",
		Long: "vipwalk walks a Kubernetes Service's virtual IP the way a packet does: the selector, the\n" +
			"endpoints, the rules of the node, the network policies. It says at which of the four\n" +
			"layers the path breaks, shows the evidence, and what would mend it. It only reads.\n\n" +
			"TARGET is what you have at hand: orders, svc/orders, production/orders,\n" +
			"orders.production.svc.cluster.local:8080, 10.96.120.45:8080, [fd00::1]:53/udp,\n" +
			":30021 or worker-1:30021 (a node port), http://orders.production:8080/health.",
		Example: "  PROGRAM orders -n production\n" +
			"  PROGRAM -A\n" +
			"  PROGRAM 10.96.120.45:8080 --from pod/web-1 -n production\n" +
			"  ssh worker-1 sudo vipwalk node-state | PROGRAM orders -n production --node-state worker-1=-\n" +
			"  PROGRAM demo",
		Args:                  cobra.ArbitraryArgs,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.version {
				_, err := fmt.Fprint(a.Out, versionLine())
				return err
			}
			return a.walkTargets(cmd, f, args)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	f.choiceFlags.add(fs)
	f.sourceFlags.add(fs)
	f.outputFlags.add(fs)
	f.verdictFlags.add(fs)
	fs.DurationVar(&f.wait, "wait", 0, "walk again until healthy, for at most this `DURATION`")
	fs.BoolVar(&f.version, "version", false, "print the version")
	a.completeWalk(cmd)
	return cmd
}

// walkTargets checks everything that can be checked before anything is read,
// then walks.
func (a *app) walkTargets(cmd *cobra.Command, f *walkFlags, args []string) error {
	run, err := a.prepare(f, args)
	if err != nil {
		if near := mistyped(cmd.Root(), args); near != "" {
			return addHint(err, "did you mean the command %s?", near)
		}
		return err
	}
	r, err := a.walkUntil(cmd.Context(), f, run)
	if err != nil {
		if near := mistyped(cmd.Root(), args); near != "" {
			return addHint(err, "if you meant the command: %s %s", cmd.Root().CommandPath(), near)
		}
		return err
	}
	if err := a.print(r, run.render, &f.outputFlags); err != nil && !isBrokenPipe(err) {
		return err
	}
	if near := mistyped(cmd.Root(), args); near != "" && notFound(r) && !f.quiet {
		fmt.Fprintf(a.Err, "hint: if you meant the command: %s %s\n", cmd.Root().CommandPath(), near)
	}
	if code := run.criteria.code(r); code != exitOK {
		return &exitError{code: code}
	}
	return nil
}

// addHint adds a hint to an error of ours.
func addHint(err error, format string, args ...any) error {
	var e *exitError
	if errors.As(err, &e) {
		return e.hint(format, args...)
	}
	return err
}

func notFound(r *diagnosis.Report) bool {
	for _, s := range r.Services {
		for _, d := range s.Diagnoses {
			if d.Code == diagnosis.ServiceNotFound {
				return true
			}
		}
	}
	return false
}

// run is a walk that has been asked for, checked and ready.
type run struct {
	options  walk.Options
	criteria criteria
	render   report.Renderer
}

func (a *app) prepare(f *walkFlags, args []string) (*run, error) {
	render, err := f.renderer()
	if err != nil {
		return nil, err
	}
	r := &run{render: render}
	if r.criteria, err = f.criteria(); err != nil {
		return nil, err
	}
	if err := f.validate(); err != nil {
		return nil, err
	}
	if f.wait < 0 || f.wait > 0 && f.offline() {
		return nil, usageErrorf("--wait %s", f.wait).hint("--wait walks the cluster again and again; with --bundle or --objects nothing changes")
	}
	if r.options, err = f.options(args); err != nil {
		return nil, err
	}
	r.options.Version = programVersion()
	r.options.Ignore, err = f.ignores()
	return r, err
}

// walkOnce reads the facts and walks.
func (a *app) walkOnce(ctx context.Context, f *walkFlags, run *run) (*diagnosis.Report, error) {
	f.silent = f.quiet
	done := a.progress(f.quiet, "reading ...")
	s, err := a.collect(ctx, &f.sourceFlags, scopeOf(run.options))
	done()
	if err != nil {
		return nil, err
	}
	o := run.options
	if o.Nodes, err = f.pickNodes(s); err != nil {
		return nil, err
	}
	if err := f.auditOptions(s, &o); err != nil {
		return nil, err
	}
	return walk.Walk(s, o), nil
}
