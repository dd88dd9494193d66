// Stage sets up the scene that the tests use, makes one incident on it, says
// how to reach it, and keeps it until it is interrupted:
//
//	cd testdata/cluster && go run ./cmd/stage [-mode nftables] [INCIDENT]
//
// Without a name nothing is broken. An incident that exists in one proxy mode
// alone is made in that. It needs root; see package cluster.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"

	"github.com/vipwalk/vipwalk/testdata/cluster"
	"github.com/vipwalk/vipwalk/testdata/cluster/incidents"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	mode := flag.String("mode", "", "the proxy `mode` of the nodes: iptables or nftables")
	flag.Parse()
	name := "healthy"
	if flag.NArg() > 0 {
		name = flag.Arg(0)
	}
	if err := stage(ctx, name, *mode); err != nil {
		fmt.Fprintln(os.Stderr, "stage:", err)
		os.Exit(1)
	}
}

func stage(ctx context.Context, name, mode string) (err error) {
	all := append(incidents.All(), incidents.Nftables()...)
	n := slices.IndexFunc(all, func(i incidents.Incident) bool { return i.Name == name && (mode == "" || i.Mode == mode) })
	if n < 0 {
		return fmt.Errorf("there is no incident %q in the mode %q; there are: %s", name, mode, strings.Join(names(all), ", "))
	}
	i := all[n]
	scene, err := incidents.NewSceneIn(ctx, cluster.Options{}, i.Mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scene.Cluster.Stop()) }()
	if err := scene.Break(ctx, i); err != nil {
		return err
	}
	kubeconfig, err := scene.Cluster.Kubeconfig(cluster.Admin)
	if err != nil {
		return err
	}
	fmt.Printf("fault: %s\nask:   vipwalk %s\n\nexport KUBECONFIG=%s\n", i.Fault, strings.Join(i.Target, " "), kubeconfig)
	for _, n := range scene.Cluster.Nodes() {
		fmt.Printf("%s: %s\n", n.Name, strings.Join(n.Command(ctx, "PROGRAM").Args, " "))
	}
	fmt.Printf("logs:  %s\n\ninterrupt to end it\n", scene.Cluster.Dir())
	<-ctx.Done()
	return nil
}

func names(all []incidents.Incident) []string {
	var out []string
	for _, i := range all {
		out = append(out, i.Name+" ("+i.Mode+")")
	}
	return out
}
