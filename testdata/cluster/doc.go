// Package cluster starts a real Kubernetes cluster for tests on one Linux
// machine: etcd, kube-apiserver, kube-controller-manager and, for each node, a
// kube-proxy, all of one release and built from their Go modules.
//
// Everything that is a matter of the network lives in network namespaces that
// nothing but this process holds open, so that the kernel removes them when it
// ends, however it ends:
//
//	fabric      a bridge with the control plane behind it, 172.31.250.1
//	node        eth0 on the fabric's bridge, a cni0 bridge for its pods, and a
//	            kube-proxy; with PID, mount and UTS namespaces of its own, so
//	            that a program run there sees a machine of that name
//	pod         eth0 on its node's cni0, and a real HTTP server that answers
//	            with the pod's name
//	external    a host beside the nodes that is no part of the cluster
//
// There is no kubelet and no scheduler; package cluster plays both for pods
// that the real controllers make (see kubelet.go). What it measures, it
// measures with real connections (see Connect).
package cluster
