package cluster

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// WaitPods waits until exactly n pods of a selector exist, none of them being
// deleted, all of them ready or, with ready false, none; and returns them
// sorted by name.
func (c *Cluster) WaitPods(ctx context.Context, namespace string, selector map[string]string, n int, ready bool) (pods []corev1.Pod, err error) {
	what := fmt.Sprintf("%d pods of %v in %s have ready=%t", n, selector, namespace, ready)
	err = Until(ctx, what, func(ctx context.Context) (string, error) {
		list, err := c.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(selector).String()})
		if err != nil {
			return "", err
		}
		pods = list.Items
		slices.SortFunc(pods, func(a, b corev1.Pod) int { return compareNames(a.Name, b.Name) })
		return c.pendingPods(pods, n, ready), nil
	})
	return pods, err
}

func compareNames(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// pendingPods says why the pods are not as WaitPods wants them.
func (c *Cluster) pendingPods(pods []corev1.Pod, n int, ready bool) string {
	if len(pods) != n {
		return fmt.Sprintf("there are %d", len(pods))
	}
	for i := range pods {
		p := &pods[i]
		cond := condition(p.Status.Conditions, corev1.PodReady)
		if p.DeletionTimestamp != nil || cond == nil || (cond.Status == corev1.ConditionTrue) != ready {
			c.kubelet.mu.Lock()
			defer c.kubelet.mu.Unlock()
			return fmt.Sprintf("pod %s is %s, condition %v, deleted %v; the last error of a kubelet: %v", p.Name, p.Status.Phase, cond, p.DeletionTimestamp, c.kubelet.lastErr)
		}
	}
	return ""
}

// WaitEndpoints waits until the EndpointSlices of a Service hold exactly these
// addresses as ready endpoints with a port, and no endpoint that terminates: to
// such a one kube-proxy sends where none is ready, though its pod may be gone.
func (c *Cluster) WaitEndpoints(ctx context.Context, namespace, service string, addresses []string) error {
	want := slices.Sorted(slices.Values(addresses))
	what := fmt.Sprintf("the ready endpoints of %s/%s are %v", namespace, service, want)
	return Until(ctx, what, func(ctx context.Context) (string, error) {
		list, err := c.Client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
		if err != nil {
			return "", err
		}
		if got := readyAddresses(list.Items); !slices.Equal(got, want) {
			return fmt.Sprintf("they are %v", got), nil
		}
		if got := terminating(list.Items); len(got) > 0 {
			return fmt.Sprintf("%v terminate", got), nil
		}
		return "", nil
	})
}

// readyAddresses are sorted; endpoints of a slice without ports do not count.
func readyAddresses(eps []discoveryv1.EndpointSlice) []string {
	var out []string
	for _, slice := range eps {
		for _, e := range slice.Endpoints {
			if len(slice.Ports) > 0 && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
				out = append(out, e.Addresses...)
			}
		}
	}
	slices.Sort(out)
	return out
}

func terminating(eps []discoveryv1.EndpointSlice) []string {
	var out []string
	for _, slice := range eps {
		for _, e := range slice.Endpoints {
			if e.Conditions.Terminating != nil && *e.Conditions.Terminating {
				out = append(out, e.Addresses...)
			}
		}
	}
	return out
}

// PodIPs are the addresses of pods.
func PodIPs(pods []corev1.Pod) []string {
	var out []string
	for i := range pods {
		out = append(out, pods[i].Status.PodIP)
	}
	return out
}
