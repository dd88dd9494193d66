package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
)

// programs are what the cluster calls beside its own binaries. kube-proxy
// itself calls iptables, iptables-save and iptables-restore.
var programs = []string{"nsenter", "mount", "iptables", "iptables-save", "iptables-restore", "ip6tables", "nft"}

// Missing says why no cluster can be started here, in words for t.Skip; empty
// where one can be.
func Missing() string {
	if runtime.GOOS != "linux" {
		return "a cluster of network namespaces needs Linux, this is " + runtime.GOOS
	}
	if os.Geteuid() != 0 {
		return "network namespaces and iptables need root"
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			return fmt.Sprintf("the program %s is not installed (Debian: iptables, nftables, iproute2, util-linux)", p)
		}
	}
	ns, err := newNetspace("trial")
	if err != nil {
		return fmt.Sprintf("this machine lets root make no network namespace: %v", err)
	}
	ns.close()
	return ""
}
