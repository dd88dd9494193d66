package cluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// sandbox is one running pod: its namespace, and a server on each port that
// its containers listen on.
type sandbox struct {
	uid     types.UID
	name    string
	node    *Node
	space   *netspace // nil for a pod on the host's network
	port    string    // its device on cni0
	ip      string
	server  *http.Server
	healthy atomic.Bool // what the server answers to the readiness probe

	started metav1.Time
	ready   bool
	since   metav1.Time // of ready's last change
}

// newSandbox starts a pod. A container listens on the ports that it declares,
// or on those that its arguments "--listen=PORT" give in their place.
func newSandbox(n *Node, pod *corev1.Pod) (*sandbox, error) {
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	s := &sandbox{uid: pod.UID, name: pod.Name, node: n, ip: n.Address, started: now, since: now}
	if pod.Spec.HostNetwork {
		return s, nil
	}
	n.lastPod++
	if n.lastPod > 254 {
		return nil, fmt.Errorf("node %s has no pod address left in %s", n.Name, n.PodCIDR)
	}
	s.ip = fmt.Sprintf("10.244.%d.%d", n.index, n.lastPod)
	s.port = "veth" + strings.ReplaceAll(string(pod.UID), "-", "")[:8]
	space, err := newNetspace(pod.Name)
	if err != nil {
		return nil, err
	}
	s.space = space
	if err := s.start(pod); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *sandbox) start(pod *corev1.Pod) error {
	if err := unlimitICMP(s.space); err != nil {
		return err
	}
	if err := s.node.space.plug("cni0", s.port, s.space, s.ip+"/24", s.node.gateway()); err != nil {
		return err
	}
	s.server = &http.Server{Handler: s.handler(pod), ReadHeaderTimeout: 10 * time.Second}
	for _, port := range listeningPorts(pod) {
		l, err := s.space.listen(net.JoinHostPort("0.0.0.0", strconv.Itoa(port)))
		if err != nil {
			return fmt.Errorf("listening on port %d: %w", port, err)
		}
		go s.server.Serve(l)
	}
	return nil
}

// handler answers with the pod's name; where a readiness probe asks and the pod
// is to fail it, with 503.
func (s *sandbox) handler(pod *corev1.Pod) http.Handler {
	probes := map[string]bool{}
	for _, c := range pod.Spec.Containers {
		if p := c.ReadinessProbe; p != nil && p.HTTPGet != nil {
			probes[p.HTTPGet.Path] = true
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if probes[r.URL.Path] && !s.healthy.Load() {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		io.WriteString(w, s.name)
	})
}

func listeningPorts(pod *corev1.Pod) []int {
	var declared, listen []int
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.Protocol == corev1.ProtocolTCP || p.Protocol == "" {
				declared = append(declared, int(p.ContainerPort))
			}
		}
		for _, arg := range c.Args {
			if v, ok := strings.CutPrefix(arg, "--listen="); ok {
				if port, err := strconv.Atoi(v); err == nil {
					listen = append(listen, port)
				}
			}
		}
	}
	if listen != nil {
		return listen
	}
	return declared
}

// close stops the servers and takes the pod off the network.
func (s *sandbox) close() {
	if s.server != nil {
		s.server.Close()
	}
	if s.space != nil {
		s.node.space.unplug(s.port) // gone already where the node is
		s.space.close()
	}
}

// probe does what the readiness probes of the containers say, from the node,
// once, and returns the message of the kubelet's event if a ready pod, or a new
// one, failed.
func (s *sandbox) probe(ctx context.Context, pod *corev1.Pod) (message string) {
	ready := true
	for _, c := range pod.Spec.Containers {
		if err := s.probeContainer(ctx, c); err != nil {
			ready, message = false, "Readiness probe failed: "+err.Error()
		}
	}
	first := condition(pod.Status.Conditions, corev1.PodReady) == nil
	if s.ready != ready {
		s.ready, s.since = ready, metav1.NewTime(time.Now().Truncate(time.Second))
	} else if !first {
		return "" // reported before
	}
	return message
}

func (s *sandbox) probeContainer(ctx context.Context, c corev1.Container) error {
	p := c.ReadinessProbe
	if p == nil || p.HTTPGet == nil || s.space == nil {
		return nil
	}
	port := p.HTTPGet.Port.IntValue()
	for _, declared := range c.Ports {
		if declared.Name == p.HTTPGet.Port.StrVal && declared.Name != "" {
			port = int(declared.ContainerPort)
		}
	}
	_, err := s.node.get(ctx, "http://"+net.JoinHostPort(s.ip, strconv.Itoa(port))+p.HTTPGet.Path)
	return err
}
