// Stage sets up the scene that the tests use, makes one incident on it, says
// how to reach it, and keeps it until it is interrupted:
//
//	cd testdata/cluster && go run ./cmd/stage [INCIDENT]
//
// Without a name nothing is broken. It needs root; see package cluster.
package main

import (
	"context"
	"errors"
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
	name := "healthy"
	if len(os.Args) > 1 {
		name = os.Args[1]
	}
	if err := stage(ctx, name); err != nil {
		fmt.Fprintln(os.Stderr, "stage:", err)
		os.Exit(1)
	}
}

func stage(ctx context.Context, name string) (err error) {
	all := incidents.All()
	i := slices.IndexFunc(all, func(i incidents.Incident) bool { return i.Name == name })
	if i < 0 {
		return fmt.Errorf("there is no incident %q; there are: %s", name, strings.Join(names(all), ", "))
	}
	scene, err := incidents.NewScene(ctx, cluster.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scene.Cluster.Stop()) }()
	if err := scene.Break(ctx, all[i]); err != nil {
		return err
	}
	kubeconfig, err := scene.Cluster.Kubeconfig(cluster.Admin)
	if err != nil {
		return err
	}
	fmt.Printf("fault: %s\nask:   vipwalk %s\n\nexport KUBECONFIG=%s\n", all[i].Fault, strings.Join(all[i].Target, " "), kubeconfig)
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
		out = append(out, i.Name)
	}
	return out
}
