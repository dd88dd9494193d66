package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

const (
	fabricAddress = "172.31.250.1"
	apiPort       = "6443"
	etcdURL       = "http://127.0.0.1:2379" // the fabric's own loopback, so it collides with nothing
	etcdPeerURL   = "http://127.0.0.1:2380"

	// ServiceCIDR and PodCIDR are the cluster's ranges.
	ServiceCIDR = "10.96.0.0/16"
	PodCIDR     = "10.244.0.0/16"
)

// controllers are those that make pods from workloads, endpoints from pods, and
// take away what a deleted owner leaves.
var controllers = []string{
	"daemonset-controller", "deployment-controller", "replicaset-controller", "statefulset-controller",
	"endpoints-controller", "endpointslice-controller", "endpointslice-mirroring-controller",
	"garbage-collector-controller", "namespace-controller", "serviceaccount-controller",
}

// auditPolicy records each request once, when it has been answered.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

func (c *Cluster) startEtcd() error {
	return c.startInFabric("etcd", c.Binaries.path("server"),
		"--data-dir", c.file("etcd"),
		"--listen-client-urls", etcdURL, "--advertise-client-urls", etcdURL,
		"--listen-peer-urls", etcdPeerURL, "--initial-advertise-peer-urls", etcdPeerURL, "--initial-cluster", "default="+etcdPeerURL,
		"--unsafe-no-fsync", "--log-level", "error")
}

func (c *Cluster) startAPIServer() error {
	policy := c.file("audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return fmt.Errorf("writing the audit policy: %w", err)
	}
	return c.startInFabric("kube-apiserver", c.Binaries.path("kube-apiserver"),
		"--etcd-servers", etcdURL,
		"--secure-port", apiPort, "--bind-address", "0.0.0.0", "--advertise-address", fabricAddress,
		"--tls-cert-file", c.credentials.file("apiserver.crt"), "--tls-private-key-file", c.credentials.file("apiserver.key"),
		"--cert-dir", c.file("certs"),
		"--service-cluster-ip-range", ServiceCIDR,
		"--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-key-file", c.credentials.file("sa.pub"), "--service-account-signing-key-file", c.credentials.file("sa.key"),
		"--token-auth-file", c.credentials.file("tokens.csv"), "--authorization-mode", "RBAC",
		// Pods need no token here, and without it a pod need not wait for its ServiceAccount.
		"--disable-admission-plugins", "ServiceAccount",
		"--audit-policy-file", policy, "--audit-log-path", c.auditLog())
}

func (c *Cluster) startControllerManager() error {
	config := c.file("controller-manager.kubeconfig")
	if err := c.credentials.writeKubeconfig(config, c.InnerServer(), Admin); err != nil {
		return err
	}
	return c.startInFabric("kube-controller-manager", c.Binaries.path("kube-controller-manager"),
		"--kubeconfig", config, "--leader-elect=false",
		"--secure-port", "0",
		"--controllers", strings.Join(controllers, ","))
}

func (c *Cluster) startInFabric(name, path string, args ...string) error {
	p, err := c.starter.start(c.fabric, name, c.dir, exec.Command(path, args...))
	if err != nil {
		return err
	}
	c.processes = append(c.processes, p)
	return nil
}

// waitReady waits until the API server says that it is.
func (c *Cluster) waitReady(ctx context.Context) error {
	return Until(ctx, "the API server is ready", func(ctx context.Context) (string, error) {
		for _, p := range c.processes {
			if err := p.ended(); err != nil {
				return "", err
			}
		}
		if _, err := c.Client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err != nil {
			return err.Error(), nil
		}
		return "", nil
	})
}
