package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// Settle returns when every kube-proxy that is not frozen has written what the
// API server holds now. It makes a Service and an EndpointSlice of its own,
// waits until each node's rules show them (watches keep the order of changes,
// so all that came before is then in the rules too), and takes them away again.
func (c *Cluster) Settle(ctx context.Context) error {
	mark := int(c.marks.Add(1)%250) + 1
	address := fmt.Sprintf("10.244.255.%d", mark)
	name := fmt.Sprintf("settle-%d", mark)
	if err := c.createMark(ctx, name, address); err != nil {
		return fmt.Errorf("settling: %w", err)
	}
	shown := c.waitRules(ctx, "its mark is in the rules", func(rules string) bool { return strings.Contains(rules, address) })
	gone := c.deleteMark(ctx, name)
	if err := errors.Join(shown, gone); err != nil {
		return fmt.Errorf("settling: %w", err)
	}
	return c.waitRules(ctx, "its mark is gone from the rules", func(rules string) bool { return !strings.Contains(rules, address) })
}

const markNamespace = "kube-system"

func (c *Cluster) createMark(ctx context.Context, name, address string) error {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: markNamespace, Name: name, Labels: map[string]string{
			discoveryv1.LabelServiceName: name, discoveryv1.LabelManagedBy: "vipwalk-test-cluster",
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address}}},
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To(""), Port: ptr.To(int32(9)), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	if _, err := c.Client.DiscoveryV1().EndpointSlices(markNamespace).Create(ctx, slice, metav1.CreateOptions{}); err != nil {
		return err
	}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: markNamespace, Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 9, TargetPort: intstr.FromInt32(9)}}},
	}
	_, err := c.Client.CoreV1().Services(markNamespace).Create(ctx, service, metav1.CreateOptions{})
	return err
}

func (c *Cluster) deleteMark(ctx context.Context, name string) error {
	return errors.Join(
		c.Client.CoreV1().Services(markNamespace).Delete(ctx, name, metav1.DeleteOptions{}),
		c.Client.DiscoveryV1().EndpointSlices(markNamespace).Delete(ctx, name, metav1.DeleteOptions{}))
}

func (c *Cluster) waitRules(ctx context.Context, what string, holds func(rules string) bool) error {
	for _, n := range c.Nodes() {
		if n.proxyFrozen() {
			continue
		}
		err := Until(ctx, what+" of "+n.Name, func(ctx context.Context) (string, error) {
			rules, err := n.proxyRules(ctx)
			if err == nil && !holds(rules) {
				return "not yet", nil
			}
			return "", err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// proxyRules are the rules in which the node's kube-proxy translates addresses.
func (n *Node) proxyRules(ctx context.Context) (string, error) {
	if n.Mode == "nftables" {
		return n.Exec(ctx, "nft", "list", "table", "ip", "kube-proxy")
	}
	return n.Exec(ctx, "iptables-save", "-t", "nat")
}
