package netpol

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// world is the cast of the table tests: a client and a backend in namespaces
// of their own, one on its node's network, and some extras.
const world = `
kind: Namespace
metadata: {name: shop, labels: {team: a}}
---
kind: Namespace
metadata: {name: store, labels: {team: b}}
---
kind: Node
metadata: {name: n1}
status: {addresses: [{type: InternalIP, address: 172.18.0.2}, {type: Hostname, address: n1}]}
---
kind: Node
metadata: {name: n2}
status: {addresses: [{type: InternalIP, address: 172.18.0.3}]}
---
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web, tier: front}}
spec: {nodeName: n2, containers: [{name: c}]}
status: {phase: Running, podIP: 10.1.0.1, podIPs: [{ip: 10.1.0.1}, {ip: "fd00::1"}], hostIP: 172.18.0.3}
---
kind: Pod
metadata: {name: near, namespace: store, labels: {app: near}}
spec: {nodeName: n2, containers: [{name: c}]}
status: {phase: Running, podIP: 10.2.0.2, hostIP: 172.18.0.3}
---
kind: Pod
metadata: {name: db, namespace: store, labels: {app: db}}
spec:
  nodeName: n1
  initContainers:
  - {name: mesh, restartPolicy: Always, ports: [{name: mesh, containerPort: 15000}]}
  - {name: once, ports: [{name: once, containerPort: 16000}]}
  containers:
  - {name: c, ports: [{name: sql, containerPort: 5432}, {name: dns, containerPort: 53, protocol: UDP}]}
status: {phase: Running, podIP: 10.2.0.1, podIPs: [{ip: 10.2.0.1}, {ip: "fd00::2"}], hostIP: 172.18.0.2}
---
kind: Pod
metadata: {name: db2, namespace: store, labels: {app: db}}
spec: {nodeName: n1, containers: [{name: c, ports: [{name: sql, containerPort: 5433}]}]}
status: {phase: Running, podIP: 10.2.0.3, hostIP: 172.18.0.2}
---
kind: Pod
metadata: {name: agent, namespace: store, labels: {app: agent}}
spec: {nodeName: n1, hostNetwork: true, containers: [{name: c, ports: [{name: sql, containerPort: 5432}]}]}
status: {phase: Running, podIP: 172.18.0.2, hostIP: 172.18.0.2}
---
kind: Pod
metadata: {name: agent2, namespace: store, labels: {app: agent}}
spec: {nodeName: n2, hostNetwork: true, containers: [{name: c}]}
status: {phase: Running, podIP: 172.18.0.3, hostIP: 172.18.0.3}
---
kind: Pod
metadata: {name: done, namespace: store, labels: {app: db}}
spec: {nodeName: n1, containers: [{name: c}]}
status: {phase: Succeeded, podIP: 10.1.0.1, hostIP: 172.18.0.2}
---
kind: Pod
metadata: {name: pending, namespace: shop, labels: {app: web}}
spec: {containers: [{name: c}]}
status: {phase: Pending}
---
kind: Pod
metadata: {name: stray, namespace: unread, labels: {app: web}}
spec: {nodeName: n2, containers: [{name: c}]}
status: {phase: Running, podIP: 10.3.0.1, hostIP: 172.18.0.3}
`

// policies wraps specs as policies p0, p1, ... of namespace store.
func policies(specs ...string) string {
	var b strings.Builder
	for i, spec := range specs {
		b.WriteString("\n---\nkind: NetworkPolicy\nmetadata: {name: p" + string(rune('0'+i)) + ", namespace: store}\nspec: " + spec)
	}
	return b.String()
}

type scene struct {
	*Evaluator
	objs Objects
}

func newScene(t testing.TB, yaml string) scene {
	t.Helper()
	objs, others := parseObjects(t, []byte(yaml))
	if others > 0 {
		t.Fatalf("%d objects of another kind", others)
	}
	return scene{New(objs), objs}
}

func (s scene) pod(t testing.TB, name string) *corev1.Pod {
	t.Helper()
	for i := range s.objs.Pods {
		if s.objs.Pods[i].Name == name {
			return &s.objs.Pods[i]
		}
	}
	t.Fatalf("no pod %s", name)
	return nil
}

// peer is an address, "node/NAME", or a pod's name.
func (s scene) peer(t testing.TB, name string) Peer {
	t.Helper()
	if ip, err := netip.ParseAddr(name); err == nil {
		return IPPeer(ip)
	}
	if node, ok := strings.CutPrefix(name, "node/"); ok {
		return NodePeer(node, netip.Addr{})
	}
	if name == "" {
		return Peer{}
	}
	return PodPeer(s.pod(t, name))
}
