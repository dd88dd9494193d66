// Command vipwalk walks a Kubernetes Service's virtual IP the way a packet does
// and says at which layer it breaks. Named kubectl-vipwalk it is a kubectl
// plugin.
package main

import (
	"os"

	"github.com/vipwalk/vipwalk/pkg/cli"
	_ "github.com/vipwalk/vipwalk/pkg/startup" // makes the start cheap
)

func main() {
	os.Exit(cli.Main(os.Args, cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, os.Getenv))
}
