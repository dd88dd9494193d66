package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
	"github.com/vipwalk/vipwalk/pkg/walk"
)

func (a *app) captureCommand() *cobra.Command {
	var src sourceFlags
	var choice choiceFlags
	var file string
	var force, quiet bool
	cmd := &cobra.Command{
		Use:   "capture [TARGET...] -o FILE.tar.gz",
		Short: "Write a bundle of what a walk reads, to walk later or elsewhere",
		Long: "Write a bundle: the objects that a walk reads, without secrets, environment values and\n" +
			"annotations that may carry them, and the node states at hand. It is a tar.gz of plain\n" +
			"files. `--bundle` walks it, and the walk gives the same report as the live one.",
		Example: "  PROGRAM capture orders -n production -o orders.tar.gz\n" +
			"  PROGRAM orders -n production --bundle orders.tar.gz",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := src.validate(); err != nil {
				return err
			}
			if err := checkTarget(file, force); err != nil {
				return err
			}
			if len(args) == 0 && choice.selector == "" && !choice.all {
				choice.allNamespaces = true
			}
			o, err := choice.options(&src, args)
			if err != nil {
				return err
			}
			// What the walk reads and no more, so that walking the bundle gives
			// what walking the cluster would have given.
			done := a.progress(quiet, "reading %s ...", describe(o))
			s, err := a.collect(cmd.Context(), &src, scopeOf(o))
			done()
			if err != nil {
				return err
			}
			if err := a.writeBundle(file, s); err != nil {
				return err
			}
			return a.captured(s, o, file, quiet)
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringVarP(&file, "output", "o", "", "the bundle's `FILE`; - for standard output")
	fl.BoolVar(&force, "force", false, "overwrite FILE")
	fl.BoolVarP(&quiet, "quiet", "q", false, "print nothing")
	choice.add(fl)
	src.add(fl)
	return cmd
}

// checkTarget finds out before anything is read whether the bundle can be
// written.
func checkTarget(file string, force bool) error {
	switch {
	case file == "":
		return usageErrorf("capture needs -o FILE.tar.gz").hint("-o - writes to standard output")
	case file == "-" || force:
		return nil
	}
	if _, err := os.Stat(file); err == nil {
		return usageErrorf("%s exists", file).hint("--force overwrites it")
	} else if !errors.Is(err, fs.ErrNotExist) {
		return usageErrorf("%w", err)
	}
	return nil
}

// writeBundle writes to a file beside the target first, so that a bundle is
// there whole or not at all.
func (a *app) writeBundle(file string, s *snapshot.Snapshot) error {
	var buf bytes.Buffer
	if err := snapshot.WriteBundle(&buf, s); err != nil {
		return err
	}
	if file == "-" {
		_, err := a.Out.Write(buf.Bytes())
		return err
	}
	partial := file + ".partial"
	if err := os.WriteFile(partial, buf.Bytes(), 0o600); err != nil {
		return usageErrorf("write the bundle: %w", err)
	}
	if err := os.Rename(partial, file); err != nil {
		return usageErrorf("write the bundle: %w", err)
	}
	return nil
}

// captured says on stderr what is in the bundle and what is not, and ends with
// 3 where something was refused.
func (a *app) captured(s *snapshot.Snapshot, o walk.Options, file string, quiet bool) error {
	failed := 0
	for _, rd := range s.Reads {
		if rd.Status == snapshot.Failed {
			failed++
			if !quiet {
				fmt.Fprintf(a.Err, "not read: %s\n", escapeMessage(where(rd)+": "+rd.Why))
			}
		}
	}
	if !quiet && file != "-" {
		fmt.Fprintf(a.Err, "wrote %s: %d Services, %d Pods, %d node states\n", escapeMessage(file), len(s.Objects.Services), len(s.Objects.Pods), len(s.Nodes))
	}
	if failed > 0 && len(s.Objects.Services) == 0 {
		return unknownErrorf("of %s nothing could be read", describe(o))
	}
	return nil
}

func where(rd snapshot.Read) string {
	out := string(rd.Resource)
	if rd.Name != "" {
		out += " " + rd.Name
	}
	if rd.Namespace != "" {
		out += " in " + rd.Namespace
	}
	return out
}
