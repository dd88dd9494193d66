// Capture makes incidents on a real cluster and has vipwalk capture a bundle
// of each:
//
//	cd testdata/cluster && go run ./cmd/capture [-o DIR] [-unpack] [INCIDENT...]
//
// Without names it captures all, those in nftables mode on a cluster of their
// own. A bundle is DIR/INCIDENT.tar.gz, or with
// -unpack the folder DIR/INCIDENT. It needs root; see package cluster.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"

	"github.com/vipwalk/vipwalk/testdata/cluster"
	"github.com/vipwalk/vipwalk/testdata/cluster/incidents"
)

func main() {
	dir := flag.String("o", "../incidents", "the `directory` to write bundles to")
	unpack := flag.Bool("unpack", false, "write folders in place of tar.gz files")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	if err := capture(ctx, *dir, *unpack, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "capture:", err)
		os.Exit(1)
	}
}

func capture(ctx context.Context, dir string, unpack bool, names []string) (err error) {
	chosen, err := choose(names)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the directory for bundles: %w", err)
	}
	for len(chosen) > 0 {
		mode := chosen[0].Mode
		same, others := split(chosen, mode)
		if err := captureIn(ctx, mode, same, dir, unpack); err != nil {
			return err
		}
		chosen = others
	}
	return nil
}

// split parts the incidents of a mode from the others.
func split(all []incidents.Incident, mode string) (same, others []incidents.Incident) {
	for _, i := range all {
		if i.Mode == mode {
			same = append(same, i)
		} else {
			others = append(others, i)
		}
	}
	return same, others
}

// captureIn captures incidents of one proxy mode.
func captureIn(ctx context.Context, mode string, chosen []incidents.Incident, dir string, unpack bool) (err error) {
	scene, err := incidents.NewSceneIn(ctx, cluster.Options{}, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scene.Cluster.Stop()) }()
	for _, i := range chosen {
		if err := captureOne(ctx, scene, i, filepath.Join(dir, i.Name), unpack); err != nil {
			return fmt.Errorf("incident %s: %w", i.Name, err)
		}
		fmt.Fprintln(os.Stderr, "captured", i.Name)
	}
	return nil
}

// choose returns the incidents of the names, or all where there are none.
func choose(names []string) ([]incidents.Incident, error) {
	all := incidents.Captured()
	if len(names) == 0 {
		return all, nil
	}
	var chosen []incidents.Incident
	for _, name := range names {
		i := slices.IndexFunc(all, func(i incidents.Incident) bool { return i.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no incident %q", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

func captureOne(ctx context.Context, s *incidents.Scene, i incidents.Incident, path string, unpack bool) (err error) {
	if i.Missing != nil && i.Missing() != "" {
		return errors.New(i.Missing())
	}
	if err := s.Break(ctx, i); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Heal(ctx, i)) }()
	flags, err := s.NodeStateFlags(ctx)
	if err != nil {
		return err
	}
	file, err := filepath.Abs(path + ".tar.gz")
	if err != nil {
		return err
	}
	args := append(append([]string{"capture", "-o", file}, i.Target...), flags...)
	out, err := s.Cluster.RunVipwalk(ctx, cluster.Admin, args...)
	if err != nil {
		return err
	}
	if out.ExitCode != 0 {
		return fmt.Errorf("vipwalk %v: exit code %d: %s", args, out.ExitCode, out.Stderr)
	}
	if unpack {
		return unpackBundle(file, path)
	}
	return nil
}
