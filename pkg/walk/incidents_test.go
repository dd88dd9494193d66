package walk

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vipwalk/vipwalk/pkg/diagnosis"
)

const (
	fail    = diagnosis.Fail
	warn    = diagnosis.Warn
	unknown = diagnosis.Unknown
	skipped = diagnosis.Skipped
)

func calledBy(kind ClientKind, name string) func(*Options) {
	return func(o *Options) { o.Client = Client{Kind: kind, Namespace: "shop", Name: name} }
}

func port(p string) func(*Options) { return func(o *Options) { o.Port = p } }

func named(name string) edit {
	return func(c cluster) {
		c.service().Spec.Ports[0].TargetPort = intstr.FromString(name)
		c.sync()
	}
}

func headless(c cluster) {
	svc := c.service()
	svc.Spec.Type, svc.Spec.ClusterIP, svc.Spec.ClusterIPs = corev1.ServiceTypeClusterIP, corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
	svc.Spec.Ports[0].NodePort = 0
	c.sync()
}

func alias(to string) edit {
	return func(c cluster) {
		c.service().Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: to}
		c.Objects.EndpointSlices = nil
	}
}

func loadBalancer(c cluster) {
	c.service().Spec.Type = corev1.ServiceTypeLoadBalancer
	c.service().CreationTimestamp = metav1.NewTime(takenAt.Add(-time.Hour))
}

func externalLocal(c cluster) {
	c.service().Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}

func internalLocal(c cluster) {
	c.service().Spec.InternalTrafficPolicy = ptr(corev1.ServiceInternalTrafficPolicyLocal)
}

func each(f func(c cluster, pod *corev1.Pod)) edit {
	return func(c cluster) {
		for _, pod := range c.webPods() {
			f(c, pod)
		}
		c.sync()
	}
}

func first(f func(c cluster, pod *corev1.Pod)) edit {
	return func(c cluster) {
		f(c, c.pod("web-1"))
		c.sync()
	}
}

func failsProbe(c cluster, pod *corev1.Pod) {
	pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8081)}}}
	unready(pod)
	c.event("Pod", pod.Name, "Warning", "Unhealthy", `Readiness probe failed: Get "http://10.244.1.5:8081/healthz": dial tcp 10.244.1.5:8081: connect: connection refused`)
}

func crashes(_ cluster, pod *corev1.Pod) {
	waiting(pod, "CrashLoopBackOff", "back-off 5m0s restarting failed container")
	pod.Status.ContainerStatuses[0].RestartCount = 7
	pod.Status.ContainerStatuses[0].LastTerminationState = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}}
}

var incidents = []incident{
	{name: "healthy"},

	// VIP101
	{name: "no such Service, a near name", ask: "wen", roots: []string{"VIP101 error"}, one: fail, two: skipped, says: []string{"there is no service wen in namespace shop", "kubectl vipwalk web -n shop"}},
	{name: "no such Service here, but in another namespace", ask: "web.sjop", roots: []string{"VIP101 error"}, one: fail, two: skipped, says: []string{"there is no namespace sjop", "near to it: shop", "kubectl vipwalk web -n shop"}},
	{name: "an address nobody owns", ask: "10.96.0.77:80", roots: []string{"VIP101 error"}, one: fail, two: skipped, says: []string{"no service owns 10.96.0.77:80"}},
	{name: "an address of a deleted Service", ask: "10.96.0.77:80", roots: []string{"VIP101 error"}, one: fail, two: skipped, says: []string{"still allocated to service shop/old", "service range 10.96.0.0/12"},
		edits: []edit{func(c cluster) {
			c.Objects.IPAddresses = []networkingv1.IPAddress{{ObjectMeta: metav1.ObjectMeta{Name: "10.96.0.77"}, Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Resource: "services", Namespace: "shop", Name: "old"}}}}
			c.Objects.ServiceCIDRs = []networkingv1.ServiceCIDR{{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/12"}}}}
		}}},
	{name: "a pod's own address", ask: "10.244.1.5:8080", roots: []string{"VIP101 error"}, one: fail, two: skipped, says: []string{"it is the address of pod shop/web-1 itself"}},
	{name: "a node port one digit off", ask: ":30081", roots: []string{"VIP101 error"}, one: fail, two: skipped, says: []string{"node port 30080 is service shop/web's"}},
	{name: "not VIP101: Services were not read", ask: "nope", edits: []edit{func(c cluster) { c.unread("services") }}, one: unknown, two: skipped},
	{name: "not VIP101: the address is the Service's", ask: "10.96.0.50:80"},

	// VIP102
	{name: "selector off by one letter", edits: []edit{selector("app", "webb")}, roots: []string{"VIP102 error"}, one: fail, two: fail,
		says: []string{"2 ready pods have app=web (one letter differs)", `{"spec":{"selector":{"app":"web"}}}`, "confirmed: 0 ready backends, layers 1, 2 fail > 2 ready backends, layers 1, 2, 4 ok; 3 not examined"}},
	{name: "selector in the wrong case", edits: []edit{selector("app", "Web")}, roots: []string{"VIP102 error"}, one: fail, two: fail, says: []string{"upper and lower case differ", "confirmed"}},
	{name: "selector under another key", edits: []edit{selector("app.kubernetes.io/name", "web")}, roots: []string{"VIP102 error"}, one: fail, two: fail,
		says: []string{"2 ready pods have app=web (not under app.kubernetes.io/name)", `{"spec":{"selector":{"app":"web","app.kubernetes.io/name":null}}}`, `{"spec":{"selector":{"app":null,"app.kubernetes.io/name":"web"}}}`, "confirmed"}},
	{name: "one pair of several is wrong", edits: []edit{relabel("app", "web", "tier", "front"), selector("app", "web", "tier", "edge")}, roots: []string{"VIP102 error"}, one: fail, two: fail,
		says: []string{"2 ready pods have tier=front", "confirmed"}},
	{name: "one pair of several is not there", edits: []edit{selector("app", "web", "release", "blue")}, roots: []string{"VIP102 error"}, one: fail, two: fail,
		says: []string{"2 ready pods lack release=blue", `{"spec":{"selector":{"release":null}}}`, "confirmed"}},
	{name: "nothing near", edits: []edit{selector("app", "payments")}, roots: []string{"VIP102 error"}, one: fail, two: fail, says: []string{"the selector matches no pod", "0 of 3 pods"}},
	{name: "the pods are in another namespace", edits: []edit{selector("k8s-app", "kube-proxy")}, roots: []string{"VIP102 error"}, one: fail, two: fail, says: []string{"2 pods in kube-system"}},
	{name: "numbers differ on purpose", edits: []edit{relabel("app", "web-2"), selector("app", "web-1")}, roots: []string{"VIP102 error"}, one: fail, two: fail, says: []string{"the selector matches no pod"}},
	{name: "only finished pods match", edits: []edit{each(func(_ cluster, p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), func(c cluster) { c.Objects.Deployments = nil }}, roots: []string{"VIP102 error"}, one: fail, two: fail, says: []string{"2 pods matched and have finished"}},
	{name: "a label with a quote in it stays one word", edits: []edit{relabel("app", "web'; reboot"), selector("app", "web; reboot")}, roots: []string{"VIP102 error"}, one: fail, two: fail, says: []string{`'{"spec":{"selector":{"app":"web'\''; reboot"}}}'`}},
	{name: "a label with a line break in it", edits: []edit{relabel("app", "web\nkubectl delete ns shop"), selector("app", "web kubectl delete ns shop")}, roots: []string{"VIP102 error"}, one: fail, two: fail},
	{name: "not VIP102: an unready pod matches", edits: []edit{each(crashes)}, roots: []string{"VIP202 error"}, two: fail, says: []string{"CrashLoopBackOff after 7 restarts, ended with exit code 1"}},
	{name: "not VIP102: pods were not read", edits: []edit{selector("app", "webb"), func(c cluster) { c.unread("pods") }}, one: unknown, two: fail},

	// VIP103
	{name: "scaled to zero", edits: []edit{scale(0)}, roots: []string{"VIP103 error"}, one: fail, two: fail,
		says: []string{"deployment/web, which the selector is right about, is scaled to 0", "kubectl scale deployment/web -n shop --replicas=1", "confirmed", "assuming the new pods become ready"}},
	{name: "scaled to zero from three", edits: []edit{scale(0), func(c cluster) {
		c.event("Deployment", "web", "Normal", "ScalingReplicaSet", "Scaled down replica set web-1111 from 3 to 0")
	}}, roots: []string{"VIP103 error"}, one: fail, two: fail, says: []string{"it was 3 before", "--replicas=3", "> 3 ready backends"}},
	{name: "scaled to zero by KEDA", edits: []edit{scale(0), func(c cluster) {
		c.event("ScaledObject", "web", "Normal", "KEDAScaleTargetDeactivated", "Deactivated apps/v1.Deployment shop/web from 2 to 0")
	}}, roots: []string{"VIP103 error"}, one: fail, two: fail, says: []string{"KEDA (scaledobject/web) did it"}},
	{name: "a quota lets no pod be made", edits: []edit{scale(2), func(c cluster) {
		c.deployment().Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: `pods "web-1111-x" is forbidden: exceeded quota: team, requested: pods=1, used: pods=5, limited: pods=5`}}
	}}, roots: []string{"VIP103 error"}, one: fail, two: fail, says: []string{"quota team is used up", "kubectl describe resourcequota team -n shop", "notSimulated"}},
	{name: "an admission webhook lets no pod be made", edits: []edit{scale(2), func(c cluster) {
		c.event("ReplicaSet", "web-1111", "Warning", "FailedCreate", "Error creating: admission webhook denied the request: no root")
	}}, roots: []string{"VIP103 error"}, one: fail, two: fail, says: []string{"asks for 2 pods, and none was created", "admission webhook denied"}},
	{name: "paused before its first rollout", edits: []edit{scale(2), func(c cluster) { c.deployment().Spec.Paused = true; c.Objects.ReplicaSets = nil }}, roots: []string{"VIP103 error"}, one: fail, two: fail, says: []string{"it is paused", "kubectl rollout resume deployment/web -n shop"}},
	{name: "a DaemonSet that fits no node", edits: []edit{scale(0), func(c cluster) {
		d := c.deployment()
		d.UID = "uid-daemonset"
		c.Objects.DaemonSets = []appsv1.DaemonSet{{ObjectMeta: d.ObjectMeta, Spec: appsv1.DaemonSetSpec{Selector: d.Spec.Selector, Template: d.Spec.Template}}}
		c.Objects.Deployments = nil
	}}, roots: []string{"VIP103 error"}, one: fail, two: fail, says: []string{"daemonset/web is to run on 0 nodes"}},
	{name: "scaling to zero: the last pods are leaving", edits: []edit{each(func(c cluster, p *corev1.Pod) {
		p.DeletionTimestamp = &metav1.Time{Time: takenAt}
		unready(p)
		c.deployment().Spec.Replicas = ptr(int32(0))
	})}, roots: []string{"VIP103 error"}, folded: []string{"VIP202 error"}, one: fail, two: fail},
	{name: "not VIP103: a DaemonSet's manifest does not tell where it fits", edits: []edit{scale(0), func(c cluster) {
		d := c.deployment()
		c.Objects.DaemonSets = []appsv1.DaemonSet{{ObjectMeta: d.ObjectMeta, Spec: appsv1.DaemonSetSpec{Selector: d.Spec.Selector, Template: d.Spec.Template}}}
		c.Objects.Deployments = nil
	}}, roots: []string{"VIP102 error"}, one: fail, two: fail},
	{name: "not VIP103: another workload is at zero", edits: []edit{func(c cluster) {
		d := *c.deployment().DeepCopy()
		d.Name, d.Spec.Replicas = "web-canary", ptr(int32(0))
		c.Objects.Deployments = append(c.Objects.Deployments, d)
	}}},
	{name: "workloads were not read", edits: []edit{scale(0), func(c cluster) { c.Objects.Deployments = nil; c.unread("deployments.apps") }}, roots: []string{"VIP102 error"}, one: fail, two: fail},

	// VIP106
	{name: "no selector and no slice", edits: []edit{manual, func(c cluster) { c.Objects.EndpointSlices = nil; c.Objects.Deployments = nil }}, roots: []string{"VIP106 error"}, one: fail, two: fail,
		says: []string{"no EndpointSlice with an address", "kubectl create -f - --dry-run=server", "notSimulated"}},
	{name: "a hand-made slice lacks the label", edits: []edit{manual, func(c cluster) { c.slice().Labels = nil }}, roots: []string{"VIP106 error"}, one: fail, two: fail,
		says: []string{"endpointslice/web-manual has 2 endpoints, but not the label", "kubectl label endpointslice web-manual -n shop kubernetes.io/service-name=web", "confirmed"}},
	{name: "the selector was forgotten", edits: []edit{manual, func(c cluster) { c.Objects.EndpointSlices = nil }}, roots: []string{"VIP106 error"}, one: fail, two: fail,
		says: []string{"the selector may have been forgotten", `{"spec":{"selector":{"app":"web"}}}`, "confirmed"}},
	{name: "an Endpoints object that nobody mirrors", edits: []edit{manual, func(c cluster) {
		c.Objects.EndpointSlices, c.Objects.Deployments = nil, nil
		c.Objects.Endpoints = []corev1.Endpoints{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Subsets: []corev1.EndpointSubset{{}}}} //nolint:staticcheck // the legacy object is what is tested
	}}, roots: []string{"VIP106 error"}, one: fail, two: fail, says: []string{"no EndpointSlice mirrors it"}},
	{name: "not VIP106: a hand-made slice", edits: []edit{manual}},
	{name: "not VIP106: slices were not read", edits: []edit{manual, func(c cluster) { c.Objects.EndpointSlices = nil; c.unread("endpointslices.discovery.k8s.io") }}, one: unknown, two: unknown},

	// VIP107
	{name: "targetPort names no port", edits: []edit{named("htpp")}, roots: []string{"VIP107 error"}, folded: []string{"VIP206 error"}, one: fail, two: fail,
		says: []string{"port 80 goes to the port named htpp, which none of 2 selected pods declares", "http 8080/TCP", `[{"op":"test","path":"/spec/ports/0/targetPort","value":"htpp"},{"op":"replace","path":"/spec/ports/0/targetPort","value":"http"}]`, "confirmed"}},
	{name: "targetPort names a port of another protocol", edits: []edit{named("http"), each(func(_ cluster, p *corev1.Pod) { p.Spec.Containers[0].Ports[0].Protocol = corev1.ProtocolUDP })}, roots: []string{"VIP107 error"}, folded: []string{"VIP206 error"}, one: fail, two: fail,
		says: []string{"the name is there, but not for protocol TCP"}},
	{name: "one of two pods lacks the name", edits: []edit{named("http"), first(func(_ cluster, p *corev1.Pod) { p.Spec.Containers[0].Ports[0].Name = "web" })}, roots: []string{"VIP107 warning"}, one: warn, says: []string{"1 of 2 selected pods do not declare"}},
	{name: "not VIP107: a sidecar declares the name", edits: []edit{named("admin"), each(func(_ cluster, p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "proxy", RestartPolicy: ptr(corev1.ContainerRestartPolicyAlways), Ports: []corev1.ContainerPort{{Name: "admin", ContainerPort: 9000}}}}
	})}},
	{name: "not VIP107: the numbers differ by pod", edits: []edit{named("http"), first(func(_ cluster, p *corev1.Pod) { p.Spec.Containers[0].Ports[0].ContainerPort = 9090 })}},

	// VIP110, VIP111, VIP112
	{name: "headless", edits: []edit{headless, func(c cluster) { c.service().Spec.Ports[0].Port = 8080 }}, roots: []string{"VIP110 info"}},
	{name: "headless that maps a port", edits: []edit{headless}, roots: []string{"VIP110 warning"}, one: warn, says: []string{"nothing maps 80 to 8080"}},
	{name: "headless that maps to a name", edits: []edit{headless, named("http")}, roots: []string{"VIP110 warning"}, one: warn, says: []string{"nothing maps 80 to 8080"}},
	{name: "not VIP110: a ClusterIP that maps a port", edits: []edit{named("http")}},
	{name: "alias", edits: []edit{alias("db.example.com")}, roots: []string{"VIP111 info"}, one: skipped, two: skipped},
	{name: "alias to an IP address", edits: []edit{alias("192.0.2.7")}, roots: []string{"VIP111 warning"}, one: warn, two: skipped, says: []string{"is an IP address"}},
	{name: "alias to itself", edits: []edit{alias("web.shop.svc.cluster.local")}, roots: []string{"VIP111 warning"}, one: warn, two: skipped, says: []string{"points at itself"}},
	{name: "alias to a Service that is not there", edits: []edit{alias("db.shop.svc.cluster.local.")}, roots: []string{"VIP111 warning"}, one: warn, two: skipped, says: []string{"there is no service db in namespace shop"}},
	{name: "not VIP111: a Service with an address", edits: []edit{func(c cluster) { c.service().Spec.ExternalName = "ignored.example.com" }}},
	{name: "no cluster IP", edits: []edit{func(c cluster) { c.service().Spec.ClusterIP, c.service().Spec.ClusterIPs = "", nil }}, roots: []string{"VIP112 error"}, one: fail, says: []string{"has no cluster IP"}},
	{name: "not VIP112: a manifest that was never applied", edits: []edit{func(c cluster) {
		c.service().Spec.ClusterIP, c.service().Spec.ClusterIPs, c.service().UID = "", nil, ""
	}}, one: unknown},

	// VIP116
	{name: "load balancer pending, nobody there", edits: []edit{loadBalancer}, roots: []string{"VIP116 error"}, one: fail, says: []string{"1h0m0s after the Service was created", "no pod of a known load balancer implementation", "confirmed"}},
	{name: "load balancer pending, MetalLB says why", edits: []edit{loadBalancer, func(c cluster) {
		c.service().Spec.LoadBalancerClass = ptr("example.com/lb")
		c.event("Service", "web", "Warning", "AllocationFailed", `Failed to allocate IP for "shop/web": no available IPs`)
		pod := readyPod("metallb-system", "metallb-controller-1", "10.244.1.77", "worker-1")
		c.Objects.Pods = append(c.Objects.Pods, pod)
	}}, roots: []string{"VIP116 error"}, one: fail, says: []string{"AllocationFailed: Failed to allocate IP", "MetalLB is there: pod metallb-system/metallb-controller-1, ready", "of class example.com/lb"}},
	{name: "load balancer young", edits: []edit{loadBalancer, func(c cluster) { c.service().CreationTimestamp = metav1.NewTime(takenAt.Add(-20 * time.Second)) }}, roots: []string{"VIP116 warning"}, one: warn},
	{name: "not VIP116: a host name is an address too", edits: []edit{loadBalancer, func(c cluster) {
		c.service().Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: "lb.example.com"}}
	}}},

	// VIP119, VIP120
	{name: "external Local, one node without", edits: []edit{externalLocal, onlyOn("worker-1")}, roots: []string{"VIP119 warning"}, one: warn, says: []string{"1 of 2 nodes", "endpoints on worker-1; none on worker-2", "confirmed"}},
	{name: "external Local, the asked node is without", ask: "worker-2:30080", edits: []edit{externalLocal, onlyOn("worker-1")}, roots: []string{"VIP119 error"}, one: fail, says: []string{"node worker-2, which was asked"}},
	{name: "external Local, asked by the node's address", ask: "172.31.250.12:30080", edits: []edit{externalLocal, onlyOn("worker-1")}, roots: []string{"VIP119 error"}, one: fail},
	{name: "external Local, the asked node serves", ask: "worker-1:30080", edits: []edit{externalLocal, onlyOn("worker-1")}, roots: []string{"VIP119 warning"}, one: warn},
	{name: "not VIP119: an endpoint on every node", edits: []edit{externalLocal}},
	{name: "not VIP119: no endpoint at all", edits: []edit{externalLocal, each(crashes)}, roots: []string{"VIP202 error"}, two: fail},
	{name: "nodes were not read", edits: []edit{externalLocal, onlyOn("worker-1"), func(c cluster) { c.Objects.Nodes = nil; c.unread("nodes") }}, one: unknown},
	{name: "external Local, a named client outside, sent to a node without", with: func(o *Options) { o.Client, o.Nodes = Client{Kind: FromExternal}, []string{"worker-1", "worker-2"} }, edits: []edit{externalLocal, onlyOn("worker-1")}, roots: []string{"VIP119 error"}, one: fail, says: []string{"node worker-2, which was asked"}},
	{name: "external Local, a pod asks a node without and is let through", ask: "worker-2:30080", with: calledBy(OnePod, "client"), edits: []edit{externalLocal, onlyOn("worker-1"), func(c cluster) {
		c.Objects.ConfigMaps[0].Data["config.conf"] += "clusterCIDR: 10.244.0.0/16\n"
	}}, roots: []string{"VIP119 warning"}, one: warn},
	{name: "external Local, a pod asks a node without, and kube-proxy can tell no pod", ask: "worker-2:30080", with: calledBy(OnePod, "client"), edits: []edit{externalLocal, onlyOn("worker-1")}, roots: []string{"VIP119 error"}, one: fail},
	{name: "external Local, the node itself asks and is let through", ask: "worker-2:30080", with: calledBy(OnNode, "worker-2"), edits: []edit{externalLocal, onlyOn("worker-1")}, roots: []string{"VIP119 warning"}, one: warn},
	{name: "external Local, one node has a terminating endpoint alone", edits: []edit{externalLocal, draining("web-2"), addNode("worker-3")}, roots: []string{"VIP119 warning"}, one: warn, says: []string{"1 of 3 nodes", "endpoints on worker-1; terminating ones that still serve on worker-2; none on worker-3"}},
	{name: "not VIP119: a terminating endpoint still serves the asked node", ask: "worker-2:30080", edits: []edit{externalLocal, draining("web-2")}},
	{name: "external Local, endpoints are on nodes of other names", edits: []edit{externalLocal, renamed(".example.com")}, roots: []string{"VIP119 error"}, one: fail, says: []string{"no endpoint is on any of 2 nodes", "nodeName worker-1.example.com, worker-2.example.com"}},
	{name: "internal Local, the one node asked about is without", with: func(o *Options) { o.Nodes = []string{"worker-1"} }, edits: []edit{internalLocal, onlyOn("worker-2")}, roots: []string{"VIP120 error"}, one: fail, says: []string{"node worker-1, which was asked"}},
	{name: "internal Local, endpoints are on nodes of other names", edits: []edit{internalLocal, renamed(".example.com")}, roots: []string{"VIP120 error"}, one: fail, says: []string{"no endpoint is on any of 2 nodes"}},
	{name: "not VIP120: a terminating endpoint still serves the client's node", with: calledBy(OnNode, "worker-2"), edits: []edit{internalLocal, draining("web-2")}},
	{name: "internal Local, the client's node is without", with: calledBy(OnePod, "client"), edits: []edit{internalLocal, onlyOn("worker-2")}, roots: []string{"VIP120 error"}, one: fail, says: []string{"no ready endpoint on the client's node worker-1", "confirmed"}},
	{name: "internal Local, any pod", edits: []edit{internalLocal, onlyOn("worker-2")}, roots: []string{"VIP120 warning"}, one: warn},
	{name: "not VIP120: the client's node serves", with: calledBy(OnNode, "worker-2"), edits: []edit{internalLocal, onlyOn("worker-2")}},

	// VIP122
	{name: "the pods' port was asked for", ask: "web.shop:8080", roots: []string{"VIP122 error"}, one: fail, says: []string{"it is the pods' port; clients of the VIP use 80"}},
	{name: "the node port was asked for", ask: "10.96.0.50:30080", roots: []string{"VIP122 error"}, one: fail, says: []string{"it is the node port of port 80"}},
	{name: "the other protocol was asked for", ask: "10.96.0.50:80/udp", roots: []string{"VIP122 error"}, one: fail, says: []string{"it is there for protocol TCP"}},
	{name: "a port name that is not there", with: port("htp"), edits: []edit{func(c cluster) { c.service().Spec.Ports[0].Name = "http"; c.sync() }}, roots: []string{"VIP122 error"}, one: fail, says: []string{"near to it is http"}},
	{name: "not VIP122: the Service's port", ask: "web.shop:80"},

	// VIP201, VIP205
	{name: "no slice for ready pods", edits: []edit{func(c cluster) { c.Objects.EndpointSlices = nil }}, roots: []string{"VIP201 error"}, two: fail, says: []string{"2 pods selected and ready, and no EndpointSlice exists", "kubectl get lease kube-controller-manager"}},
	{name: "not VIP201: the pods became ready a moment ago", edits: []edit{func(c cluster) {
		c.Objects.EndpointSlices = nil
		for _, p := range c.webPods() {
			p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(takenAt.Add(-time.Second))
		}
	}}, two: unknown},
	{name: "a ready pod is in no slice", edits: []edit{func(c cluster) { c.slice().Endpoints = c.slice().Endpoints[:1] }}, roots: []string{"VIP205 warning"}, two: warn, says: []string{"1 selected pod ready, and no EndpointSlice offers it"}},
	{name: "no ready pod is in a slice", edits: []edit{func(c cluster) { c.slice().Endpoints = nil }}, roots: []string{"VIP205 error"}, two: fail},
	{name: "a slice calls a ready pod not ready", edits: []edit{func(c cluster) { c.slice().Endpoints[0].Conditions.Ready = ptr(false) }}, roots: []string{"VIP205 warning"}, two: warn, says: []string{"not ready in endpointslice/"}},
	{name: "not VIP205: the pod became ready a moment ago", edits: []edit{func(c cluster) {
		c.slice().Endpoints = c.slice().Endpoints[:1]
		c.pod("web-2").Status.Conditions[0].LastTransitionTime = metav1.NewTime(takenAt.Add(-4 * time.Second))
	}}},
	{name: "not VIP205: the pod is leaving", edits: []edit{func(c cluster) {
		c.slice().Endpoints = c.slice().Endpoints[:1]
		c.pod("web-2").DeletionTimestamp = &metav1.Time{Time: takenAt}
	}}},

	// VIP202, VIP203
	{name: "readiness probes fail", edits: []edit{each(failsProbe)}, roots: []string{"VIP202 error"}, two: fail,
		says: []string{"none of 2 endpoints is ready: 2 fail their readiness probe", "connection refused", "the container does not declare port 8081 (it declares http 8080)", "kubectl patch deployment/web"}},
	{name: "one probe fails, one crashes", edits: []edit{first(failsProbe), func(c cluster) { crashes(c, c.pod("web-2")); c.sync() }}, roots: []string{"VIP202 error"}, two: fail, says: []string{"1 fails its readiness probe, 1 crashes", "web-2: container c: CrashLoopBackOff", "kubectl logs web-2 -n shop -c c --previous"}},
	{name: "killed for memory", edits: []edit{each(func(c cluster, p *corev1.Pod) {
		crashes(c, p)
		p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}
	})}, roots: []string{"VIP202 error"}, two: fail, says: []string{"2 are killed for their memory", "exit code 137 (OOMKilled)"}},
	{name: "image cannot be pulled after a rollout", edits: []edit{each(func(c cluster, p *corev1.Pod) {
		waiting(p, "ImagePullBackOff", "Back-off pulling image")
		p.Status.ContainerStatuses[0].Image = "web:2"
		c.event("Pod", p.Name, "Warning", "Failed", `Failed to pull image "web:2": not found`)
	}), func(c cluster) {
		old := *c.Objects.ReplicaSets[0].DeepCopy()
		old.Name, old.CreationTimestamp = "web-0000", metav1.NewTime(takenAt.Add(-48*time.Hour))
		c.Objects.ReplicaSets = append(c.Objects.ReplicaSets, old)
	}}, roots: []string{"VIP202 error"}, two: fail, says: []string{"2 cannot pull their image", "ImagePullBackOff for image web:2", "not found", "kubectl rollout undo deployment/web -n shop", "notSimulated"}},
	{name: "not scheduled", edits: []edit{each(func(_ cluster, p *corev1.Pod) {
		p.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/2 nodes are available: 2 Insufficient cpu."}}}
	})}, roots: []string{"VIP202 error"}, two: fail, says: []string{"2 are not scheduled", "Insufficient cpu"}},
	{name: "an init container fails", edits: []edit{each(func(_ cluster, p *corev1.Pod) {
		waiting(p, "PodInitializing", "")
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "migrate", RestartCount: 3, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}, LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 2}}}}
	})}, roots: []string{"VIP202 error"}, two: fail, says: []string{"held up by an init container", "init container migrate: CrashLoopBackOff after 3 restarts, ended with exit code 2"}},
	{name: "a readiness gate is not set", edits: []edit{each(func(_ cluster, p *corev1.Pod) {
		unready(p)
		p.Status.ContainerStatuses[0].Ready = true
		p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "target-health.example.com/tg"}}
	})}, roots: []string{"VIP202 error"}, two: fail, says: []string{"2 wait for a readiness gate", "target-health.example.com/tg is not set"}},
	{name: "the node is not ready", edits: []edit{onlyOn("worker-2"), each(func(c cluster, p *corev1.Pod) {
		unready(p)
		c.Objects.Nodes[1].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown"}}
	})}, roots: []string{"VIP202 error"}, two: fail, says: []string{"2 are on nodes that are not ready", "NodeStatusUnknown"}},
	{name: "a config map is missing", edits: []edit{each(func(_ cluster, p *corev1.Pod) { waiting(p, "CreateContainerConfigError", `configmap "web" not found`) })}, roots: []string{"VIP202 error"}, two: fail, says: []string{`configmap "web" not found`}},
	{name: "only terminating endpoints serve", edits: []edit{each(func(_ cluster, p *corev1.Pod) {
		p.DeletionTimestamp = &metav1.Time{Time: takenAt.Add(20 * time.Second)}
	})}, roots: []string{"VIP202 warning"}, two: warn, says: []string{"traffic goes to 2 terminating ones that still serve"}},
	{name: "a hand-made endpoint is marked not ready", edits: []edit{manual, func(c cluster) {
		for i := range c.slice().Endpoints {
			c.slice().Endpoints[i].Conditions.Ready = ptr(false)
		}
	}}, roots: []string{"VIP202 error"}, two: fail, says: []string{"marked not ready in their slice"}},
	{name: "not VIP202: unready pods are published on purpose", edits: []edit{func(c cluster) { c.service().Spec.PublishNotReadyAddresses = true }, each(failsProbe)}},
	{name: "the only pod is not ready, without a reason", edits: []edit{func(c cluster) { c.deletePods("web-2") }, first(func(_ cluster, p *corev1.Pod) {
		unready(p)
		p.Status.Conditions[0].Reason, p.Status.Conditions[0].Message, p.Status.ContainerStatuses = "", "", nil
	})}, roots: []string{"VIP202 error"}, two: fail, says: []string{"the only endpoint is not ready", "web-1: no reason is given"}},
	{name: "slices without pods", edits: []edit{each(failsProbe), func(c cluster) { c.Objects.Pods = nil; c.unread("pods") }}, roots: []string{"VIP202 error"}, one: unknown, two: fail},
	{name: "one of two is not ready", edits: []edit{first(failsProbe)}, roots: []string{"VIP203 warning"}, two: warn, says: []string{"1 of 2 endpoints not ready: 1 fails its readiness probe"}},
	{name: "not VIP203: a pod has only begun to start", edits: []edit{first(func(_ cluster, p *corev1.Pod) {
		waiting(p, "ContainerCreating", "")
		p.CreationTimestamp = metav1.NewTime(takenAt.Add(-5 * time.Second))
	})}},
	{name: "not VIP203: a pod is leaving in a rollout", edits: []edit{first(func(_ cluster, p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: takenAt}; unready(p) })}},

	// VIP204
	{name: "a pod is gone, its endpoint is not", edits: []edit{func(c cluster) { c.deletePods("web-2") }}, roots: []string{"VIP204 error"}, two: fail, says: []string{"1 address in the EndpointSlices that no living pod has", "10.244.2.6: pod web-2 is gone", "kubectl delete endpointslice", "confirmed", "assuming the EndpointSlice controller runs"}},
	{name: "its address is another pod's now", edits: []edit{func(c cluster) {
		c.deletePods("web-2")
		c.Objects.Pods = append(c.Objects.Pods, readyPod("other", "db-0", "10.244.2.6", "worker-2"))
	}}, roots: []string{"VIP204 error"}, two: fail, says: []string{"pod other/db-0 has its address now"}},
	{name: "the pod was made anew", edits: []edit{func(c cluster) { c.pod("web-2").UID = "uid-new"; c.pod("web-2").Status.PodIPs[0].IP = "10.244.2.9" }}, roots: []string{"VIP204 error"}, two: fail, says: []string{"made anew with another address"}},
	{name: "the pod has finished", edits: []edit{func(c cluster) { c.pod("web-2").Status.Phase = corev1.PodFailed }}, roots: []string{"VIP204 error"}, two: fail, says: []string{"has finished (Failed)"}},
	{name: "not VIP204: a hand-made slice holds any address", edits: []edit{manual, func(c cluster) { c.slice().Endpoints[0].Addresses = []string{"192.0.2.1"} }}},
	{name: "not VIP204: the endpoint is marked as leaving", edits: []edit{func(c cluster) {
		c.slice().Endpoints[1].Conditions = discoveryv1.EndpointConditions{Ready: ptr(false), Serving: ptr(false), Terminating: ptr(true)}
		c.deletePods("web-2")
	}}},

	{name: "all pods were replaced, and the slices do not follow", edits: []edit{func(c cluster) {
		c.deletePods("web-1", "web-2")
		for name, ip := range map[string]string{"web-3": "10.244.1.8", "web-4": "10.244.2.8"} {
			pod := readyPod("shop", name, ip, "worker-1")
			pod.Labels = map[string]string{"app": "web"}
			c.Objects.Pods = append(c.Objects.Pods, pod)
		}
	}}, roots: []string{"VIP204 error"}, folded: []string{"VIP205 error"}, two: fail, says: []string{"2 addresses in the EndpointSlices that no living pod has", "kubectl get lease kube-controller-manager", "notSimulated"}},

	// VIP206
	{name: "the slice has no port", edits: []edit{func(c cluster) { c.slice().Ports = nil }}, roots: []string{"VIP206 error"}, two: fail, says: []string{"no EndpointSlice has a port for port 80, so its 2 endpoints count for nothing", "confirmed"}},
	{name: "the slice has no port, and pods were not read", edits: []edit{func(c cluster) { c.slice().Ports = nil; c.Objects.Pods = nil; c.unread("pods") }}, roots: []string{"VIP206 error"}, one: unknown, two: fail, says: []string{"kubectl get lease kube-controller-manager"}},
	{name: "the slice has the old number", edits: []edit{func(c cluster) { c.slice().Ports[0].Port = ptr(int32(9090)) }}, roots: []string{"VIP206 error"}, two: fail, says: []string{"gives port 80 the number 9090, and targetPort is 8080", "confirmed"}},
	{name: "a hand-made slice calls its port otherwise", edits: []edit{manual, func(c cluster) { c.service().Spec.Ports[0].Name = "http" }}, roots: []string{"VIP206 error"}, two: fail, says: []string{`"value":"http"`, "kubectl patch endpointslice web-manual", "confirmed"}},
	{name: "not VIP206: a hand-made slice has its own number", edits: []edit{manual, func(c cluster) { c.slice().Ports[0].Port = ptr(int32(5432)) }}},
	{name: "not VIP206: slices by port number", edits: []edit{named("http"), first(func(_ cluster, p *corev1.Pod) { p.Spec.Containers[0].Ports[0].ContainerPort = 9090 })}},

	// VIP211
	{name: "hints send every node to one of two", edits: []edit{distributed("PreferClose"), inZones("a", "a"), hintedFor("a", "b")}, roots: []string{"VIP211 warning"}, two: warn,
		says: []string{"topology hints send 2 nodes of zone a to 1 of 2 ready endpoints: 10.244.1.5:8080 gets 2.0 times an even share", "10.244.1.5 for zone a", "service/web .spec.trafficDistribution PreferClose", "kubectl get nodes -l topology.kubernetes.io/zone=a", `"trafficDistribution":null`, "confirmed"}},
	{name: "hints by the annotation", edits: []edit{topologyMode("Auto"), inZones("a", "a"), hintedFor("a", "b")}, roots: []string{"VIP211 warning"}, two: warn, says: []string{`"service.kubernetes.io/topology-mode":null`, "confirmed"}},
	{name: "hints that nobody asks for", edits: []edit{inZones("a", "a"), hintedFor("a", "b")}, roots: []string{"VIP211 warning"}, two: warn, says: []string{"find out who gives the endpoints hints"}},
	{name: "one endpoint has no hint", edits: []edit{distributed("PreferSameZone"), inZones("a", "b"), hintedFor("a", "")}, roots: []string{"VIP211 info"}, says: []string{"1 of 2 ready endpoints carry no hint, and kube-proxy heeds all or none", "10.244.2.6 no hint"}},
	{name: "no endpoint has a hint", edits: []edit{distributed("PreferClose"), inZones("a", "b")}, roots: []string{"VIP211 info"}, says: []string{"no ready endpoint carries a hint"}},
	{name: "a node has no zone", edits: []edit{distributed("PreferClose"), inZones("a", ""), hintedFor("a", "b")}, roots: []string{"VIP211 info"}, says: []string{"1 node without the label topology.kubernetes.io/zone: worker-2"}},
	{name: "hints for zones that no node is in", edits: []edit{distributed("PreferClose"), inZones("a", "b"), hintedFor("c", "d")}, roots: []string{"VIP211 info"}, says: []string{"they are for no zone or node that has clients"}},
	{name: "hints for nodes crowd one", edits: []edit{distributed("PreferSameNode"), hintedNodes("worker-1", "worker-9"), func(c cluster) {
		c.slice().Endpoints[0].Hints.ForNodes = append(c.slice().Endpoints[0].Hints.ForNodes, discoveryv1.ForNode{Name: "worker-2"})
	}}, roots: []string{"VIP211 warning"}, two: warn, says: []string{"topology hints send node worker-1 to 1 of 2", "node worker-2: 10.244.1.5:8080"}},
	{name: "not VIP211: each zone has one of two, and as many nodes", edits: []edit{distributed("PreferClose"), inZones("a", "b"), hintedFor("a", "b")}},
	{name: "not VIP211: each node has its own", edits: []edit{distributed("PreferSameNode"), hintedNodes("worker-1", "worker-2")}},
	{name: "not VIP211: kube-proxy does not heed hints for nodes yet", edits: []edit{hintedNodes("worker-1", "worker-1"), func(c cluster) {
		for i := range c.Objects.Nodes {
			c.Objects.Nodes[i].Status.NodeInfo.KubeletVersion = "v1.32.4+k3s1"
		}
	}}},
	{name: "not VIP211: one zone, and no hints where near is everywhere", edits: []edit{distributed("PreferClose"), inZones("a", "a")}},
	{name: "not VIP211: hints are nothing to internalTrafficPolicy Local", edits: []edit{distributed("PreferClose"), inZones("a", "a"), hintedFor("a", "b"), internalLocal}},
	{name: "not VIP211: turned off", edits: []edit{topologyMode("Disabled"), inZones("a", "b")}},
	{name: "not VIP211: nodes were not read", edits: []edit{distributed("PreferClose"), inZones("a", "a"), hintedFor("a", "b"), func(c cluster) { c.Objects.Nodes = nil; c.unread("nodes") }}},
}

func distributed(distribution string) edit {
	return func(c cluster) { c.service().Spec.TrafficDistribution = &distribution }
}

func topologyMode(mode string) edit {
	return func(c cluster) {
		c.service().Annotations = map[string]string{corev1.AnnotationTopologyMode: mode}
	}
}

// inZones labels the nodes; "" leaves one without.
func inZones(zones ...string) edit {
	return func(c cluster) {
		for i, z := range zones {
			if z != "" {
				c.Objects.Nodes[i].Labels = map[string]string{corev1.LabelTopologyZone: z}
			}
		}
	}
}

// hintedFor gives each endpoint a hint for a zone; "" leaves one without.
func hintedFor(zones ...string) edit {
	return func(c cluster) {
		for i, z := range zones {
			if z != "" {
				c.slice().Endpoints[i].Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: z}}}
			}
		}
	}
}

func hintedNodes(nodes ...string) edit {
	return func(c cluster) {
		for i, n := range nodes {
			c.slice().Endpoints[i].Hints = &discoveryv1.EndpointHints{ForNodes: []discoveryv1.ForNode{{Name: n}}}
		}
	}
}

// draining makes one pod's endpoint terminating, and serving still.
func draining(pod string) edit {
	return func(c cluster) {
		c.pod(pod).DeletionTimestamp = &metav1.Time{Time: takenAt.Add(20 * time.Second)}
		c.sync()
	}
}

func addNode(name string) edit {
	return func(c cluster) {
		n := *c.Objects.Nodes[1].DeepCopy()
		n.Name, n.Status.Addresses = name, nil
		c.Objects.Nodes = append(c.Objects.Nodes, n)
	}
}

// renamed gives the endpoints' nodes other names than the Nodes have.
func renamed(suffix string) edit {
	return func(c cluster) {
		for i := range c.slice().Endpoints {
			name := *c.slice().Endpoints[i].NodeName + suffix
			c.slice().Endpoints[i].NodeName = &name
		}
	}
}
