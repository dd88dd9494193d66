package cluster

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes/scheme"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // a kubeconfig may name any of them
	"k8s.io/client-go/rest"
)

// Client reads from one API server. It keeps nothing on disk: it has no
// discovery cache, because the resources that it reads are known.
type Client struct {
	server    string
	namespace string
	rest      map[schema.GroupVersion]rest.Interface
	now       func() time.Time
	// config is as it came, for Execs; version is the program's own.
	config  *rest.Config
	version string
}

// groups are the API groups that are read.
var groups = []schema.GroupVersion{
	corev1.SchemeGroupVersion, appsv1.SchemeGroupVersion, discoveryv1.SchemeGroupVersion, networkingv1.SchemeGroupVersion,
}

// New makes a Client from kubectl's own flags, kubeconfig and environment. It
// sends nothing yet. The error says what is wrong with the configuration:
// none at all, a file that is not there, a context that does not exist.
func New(flags *genericclioptions.ConfigFlags, version string) (*Client, error) {
	loader := flags.ToRawKubeConfigLoader()
	// The guard is put around what the loader yields, not through the flags'
	// WrapConfigFn, which a caller could set to something else.
	cfg, err := loader.ClientConfig()
	if err != nil {
		return nil, configError(err)
	}
	if flags.WrapConfigFn != nil {
		cfg = flags.WrapConfigFn(cfg)
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, configError(err)
	}
	c, err := NewForConfig(cfg, version)
	if err != nil {
		return nil, err
	}
	c.namespace = namespace
	return c, nil
}

func configError(err error) error {
	if errors.Is(err, genericclioptions.ErrEmptyConfig) {
		return errors.New("no cluster to ask: no kubeconfig was found (--kubeconfig, KUBECONFIG, ~/.kube/config); name one, or give --bundle or --objects in place of the API")
	}
	return fmt.Errorf("read the kubeconfig: %w; see `kubectl config get-contexts`", err)
}

// NewForConfig makes a Client for a configuration from elsewhere.
func NewForConfig(cfg *rest.Config, version string) (*Client, error) {
	original := rest.CopyConfig(cfg)
	cfg = ReadOnly(cfg)
	cfg.UserAgent = "vipwalk/" + version
	cfg.QPS, cfg.Burst = 100, 200 // a dozen requests at once are meant
	cfg.WarningHandler = rest.NoWarnings{}
	cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	cfg.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	hc, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, configError(err)
	}
	c := &Client{server: serverURL(cfg.Host), namespace: "default", rest: map[schema.GroupVersion]rest.Interface{}, now: time.Now, config: original, version: version}
	for _, gv := range groups {
		gcfg := rest.CopyConfig(cfg)
		gcfg.GroupVersion = &gv
		gcfg.APIPath = "/apis"
		if gv.Group == "" {
			gcfg.APIPath = "/api"
		}
		rc, err := rest.RESTClientForConfigAndClient(gcfg, hc)
		if err != nil {
			return nil, configError(err)
		}
		c.rest[gv] = rc
	}
	return c, nil
}

// ReadOnly returns a copy of a configuration whose transport is behind Guard.
// It fits genericclioptions.ConfigFlags.WrapConfigFn too.
func ReadOnly(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	root := ""
	if u, _, err := rest.DefaultServerUrlFor(cfg); err == nil {
		root = u.Path
	}
	before := cfg.WrapTransport
	cfg.WrapTransport = func(rt http.RoundTripper) http.RoundTripper {
		rt = Guard(rt, root)
		if before != nil {
			rt = before(rt)
		}
		return rt
	}
	return cfg
}

// serverURL is the API server's address without what may be secret in it.
func serverURL(host string) string {
	u, err := url.Parse(host)
	if err != nil || u.Host == "" {
		u, err = url.Parse("//" + host)
	}
	if err != nil {
		return "the API server"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	if u.Scheme == "" {
		return u.Host + u.Path
	}
	return u.String()
}

// Server is the API server's address, without credentials.
func (c *Client) Server() string { return c.server }

// Namespace is the one in force: the flag's, the context's, or "default".
func (c *Client) Namespace() string { return c.namespace }

// WithClock sets the clock that a Snapshot's time is taken from.
func (c *Client) WithClock(now func() time.Time) *Client {
	c.now = now
	return c
}
