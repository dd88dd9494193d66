package cluster

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// writeKubeconfig writes a kubeconfig for a user at a server's address.
func (c *credentials) writeKubeconfig(path, server, user string) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["cluster"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: c.ca}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: c.tokens[user]}
	config.Contexts["cluster"] = &clientcmdapi.Context{Cluster: "cluster", AuthInfo: user}
	config.CurrentContext = "cluster"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("writing a kubeconfig for %s: %w", user, err)
	}
	return nil
}

// restConfig is a client's configuration for a user at a server's address.
func (c *credentials) restConfig(server, user string) *rest.Config {
	return &rest.Config{
		Host: server, BearerToken: c.tokens[user],
		TLSClientConfig: rest.TLSClientConfig{CAData: c.ca},
		QPS:             500, Burst: 500,
		UserAgent: "vipwalk-test-cluster",
	}
}
