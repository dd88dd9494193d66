package cli

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vipwalk/vipwalk/pkg/cluster"
	"github.com/vipwalk/vipwalk/pkg/walk"
)

// namespace is the one in force: -n, or the context's; where objects come from
// files the kubeconfig is not asked, so that a bundle reads the same everywhere.
func (f *sourceFlags) namespace() (string, error) {
	if f.config.Namespace != nil && *f.config.Namespace != "" {
		return *f.config.Namespace, nil
	}
	if f.offline() {
		return "default", nil
	}
	ns, _, err := f.config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", usageErrorf("read the kubeconfig: %w", err).hint("see `kubectl config get-contexts`")
	}
	return ns, nil
}

// options turns flags and arguments into what to walk.
func (f *walkFlags) options(args []string) (walk.Options, error) {
	return f.choiceFlags.options(&f.sourceFlags, args)
}

func (f *choiceFlags) options(src *sourceFlags, args []string) (walk.Options, error) {
	if err := src.missingKubeconfig(); err != nil {
		return walk.Options{}, err
	}
	ns, err := src.namespace()
	if err != nil {
		return walk.Options{}, err
	}
	o := walk.Options{Port: f.port}
	if o.Client, err = walk.ParseClient(f.from, ns); err != nil {
		return o, usageErrorf("%w", err)
	}
	if f.selector != "" {
		if o.Selector, err = labels.Parse(f.selector); err != nil {
			return o, usageErrorf("-l %s: %w", f.selector, err)
		}
	}
	many := f.allNamespaces || f.all || f.selector != ""
	switch {
	case many && len(args) > 0:
		return o, usageErrorf("both targets (%s) and -A, --all or -l are given", strings.Join(args, " ")).hint("give one or the other")
	case many:
		o.All = true
		if !f.allNamespaces {
			o.Namespaces = []string{ns}
		}
	case len(args) == 0 && src.offline():
		// A bundle or a few files are walked whole, unless -n narrows them.
		o.All = true
		if src.config.Namespace != nil && *src.config.Namespace != "" {
			o.Namespaces = []string{ns}
		}
	case len(args) == 0:
		return o, usageErrorf("nothing to walk").hint("name a Service: vipwalk orders -n production").
			hint("or walk many: -A, --all, -l SELECTOR; `--help` lists the flags, `demo` needs no cluster")
	default:
		return f.targets(o, args, ns)
	}
	return o, nil
}

func (f *choiceFlags) targets(o walk.Options, args []string, ns string) (walk.Options, error) {
	for _, arg := range args {
		if slices.Contains(laterCommands, arg) {
			return o, usageErrorf("this version has no command %q yet", arg).hint("a Service of that name is svc/%s", arg)
		}
		t, err := walk.ParseTarget(arg, ns)
		if err != nil {
			return o, usageErrorf("%w", err)
		}
		o.Targets = append(o.Targets, t)
	}
	return o, nil
}

// Node ports are allocated from this range unless the API server was told
// otherwise; it decides only over whether NODE:PORT is looked for everywhere.
const firstNodePort, lastNodePort = 30000, 32767

// scopeOf says what has to be read for a walk.
func scopeOf(o walk.Options) cluster.Scope {
	s := cluster.Scope{Namespaces: o.Namespaces, All: o.All && len(o.Namespaces) == 0}
	for _, t := range o.Targets {
		switch {
		case t.NodePort:
			s.ResolveAddress = true
			s.NodePorts = append(s.NodePorts, t.Port)
		case t.Addr.IsValid():
			s.ResolveAddress = true
			s.Addresses = append(s.Addresses, t.Addr)
			if t.Port != 0 {
				s.NodePorts = append(s.NodePorts, t.Port) // it may be a node's address
			}
		default:
			s.Services = append(s.Services, types.NamespacedName{Namespace: t.Namespace, Name: t.Name})
			if t.Port >= firstNodePort && t.Port <= lastNodePort {
				s.ResolveAddress = true // worker-1:30021 reads like a Service with a port
				s.NodePorts = append(s.NodePorts, t.Port)
			}
		}
	}
	if o.Client.Kind == walk.OnePod {
		s.ClientPod = &types.NamespacedName{Namespace: o.Client.Namespace, Name: o.Client.Name}
	}
	return s
}

// describe is what a scope is about, for a message.
func describe(o walk.Options) string {
	switch {
	case o.All && len(o.Namespaces) == 0:
		return "every Service"
	case o.All:
		return fmt.Sprintf("the Services of %s", strings.Join(o.Namespaces, ", "))
	}
	var out []string
	for _, t := range o.Targets {
		out = append(out, t.Text)
	}
	return strings.Join(out, ", ")
}
