package snapshot

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// StripService keeps a Service's spec and its load balancer status.
func StripService(in *corev1.Service) corev1.Service {
	s := &in.Spec
	return corev1.Service{
		ObjectMeta: meta(&in.ObjectMeta),
		Spec: corev1.ServiceSpec{
			Type:                          s.Type,
			Ports:                         each(s.Ports, servicePort),
			Selector:                      copyMap(s.Selector),
			ClusterIP:                     s.ClusterIP,
			ClusterIPs:                    copySlice(s.ClusterIPs),
			IPFamilies:                    copySlice(s.IPFamilies),
			IPFamilyPolicy:                copyPtr(s.IPFamilyPolicy),
			ExternalIPs:                   copySlice(s.ExternalIPs),
			ExternalName:                  s.ExternalName,
			ExternalTrafficPolicy:         s.ExternalTrafficPolicy,
			InternalTrafficPolicy:         copyPtr(s.InternalTrafficPolicy),
			TrafficDistribution:           copyPtr(s.TrafficDistribution),
			HealthCheckNodePort:           s.HealthCheckNodePort,
			PublishNotReadyAddresses:      s.PublishNotReadyAddresses,
			SessionAffinity:               s.SessionAffinity,
			SessionAffinityConfig:         with(s.SessionAffinityConfig, affinityConfig),
			LoadBalancerIP:                s.LoadBalancerIP,
			LoadBalancerClass:             copyPtr(s.LoadBalancerClass),
			LoadBalancerSourceRanges:      copySlice(s.LoadBalancerSourceRanges),
			AllocateLoadBalancerNodePorts: copyPtr(s.AllocateLoadBalancerNodePorts),
		},
		Status: corev1.ServiceStatus{
			LoadBalancer: corev1.LoadBalancerStatus{Ingress: each(in.Status.LoadBalancer.Ingress, loadBalancerIngress)},
			Conditions:   each(in.Status.Conditions, condition),
		},
	}
}

func servicePort(in *corev1.ServicePort) corev1.ServicePort {
	return corev1.ServicePort{
		Name: in.Name, Protocol: in.Protocol, AppProtocol: copyPtr(in.AppProtocol),
		Port: in.Port, TargetPort: in.TargetPort, NodePort: in.NodePort,
	}
}

func affinityConfig(in *corev1.SessionAffinityConfig) corev1.SessionAffinityConfig {
	return corev1.SessionAffinityConfig{ClientIP: with(in.ClientIP, func(c *corev1.ClientIPConfig) corev1.ClientIPConfig {
		return corev1.ClientIPConfig{TimeoutSeconds: copyPtr(c.TimeoutSeconds)}
	})}
}

func loadBalancerIngress(in *corev1.LoadBalancerIngress) corev1.LoadBalancerIngress {
	return corev1.LoadBalancerIngress{
		IP: in.IP, Hostname: in.Hostname, IPMode: copyPtr(in.IPMode),
		Ports: each(in.Ports, func(p *corev1.PortStatus) corev1.PortStatus {
			return corev1.PortStatus{Port: p.Port, Protocol: p.Protocol, Error: copyPtr(p.Error)}
		}),
	}
}

// StripEndpointSlice keeps all of a slice but its annotations.
func StripEndpointSlice(in *discoveryv1.EndpointSlice) discoveryv1.EndpointSlice {
	return discoveryv1.EndpointSlice{
		ObjectMeta:  meta(&in.ObjectMeta),
		AddressType: in.AddressType,
		Endpoints:   each(in.Endpoints, endpoint),
		Ports: each(in.Ports, func(p *discoveryv1.EndpointPort) discoveryv1.EndpointPort {
			return discoveryv1.EndpointPort{
				Name: copyPtr(p.Name), Protocol: copyPtr(p.Protocol), Port: copyPtr(p.Port), AppProtocol: copyPtr(p.AppProtocol),
			}
		}),
	}
}

func endpoint(in *discoveryv1.Endpoint) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{
		Addresses: copySlice(in.Addresses),
		Conditions: discoveryv1.EndpointConditions{
			Ready: copyPtr(in.Conditions.Ready), Serving: copyPtr(in.Conditions.Serving), Terminating: copyPtr(in.Conditions.Terminating),
		},
		Hostname:  copyPtr(in.Hostname),
		TargetRef: with(in.TargetRef, objectReference),
		NodeName:  copyPtr(in.NodeName),
		Zone:      copyPtr(in.Zone),
		Hints:     with(in.Hints, endpointHints),
	}
}

func endpointHints(in *discoveryv1.EndpointHints) discoveryv1.EndpointHints {
	return discoveryv1.EndpointHints{
		ForZones: each(in.ForZones, func(z *discoveryv1.ForZone) discoveryv1.ForZone { return discoveryv1.ForZone{Name: z.Name} }),
		ForNodes: each(in.ForNodes, func(n *discoveryv1.ForNode) discoveryv1.ForNode { return discoveryv1.ForNode{Name: n.Name} }),
	}
}

// StripEndpoints keeps all of the legacy object but its annotations.
func StripEndpoints(in *corev1.Endpoints) corev1.Endpoints { //nolint:staticcheck // see Objects
	return corev1.Endpoints{ //nolint:staticcheck // see Objects
		ObjectMeta: meta(&in.ObjectMeta),
		Subsets: each(in.Subsets, func(s *corev1.EndpointSubset) corev1.EndpointSubset { //nolint:staticcheck // see Objects
			return corev1.EndpointSubset{ //nolint:staticcheck // see Objects
				Addresses:         each(s.Addresses, endpointAddress),
				NotReadyAddresses: each(s.NotReadyAddresses, endpointAddress),
				Ports: each(s.Ports, func(p *corev1.EndpointPort) corev1.EndpointPort {
					return corev1.EndpointPort{Name: p.Name, Port: p.Port, Protocol: p.Protocol, AppProtocol: copyPtr(p.AppProtocol)}
				}),
			}
		}),
	}
}

func endpointAddress(in *corev1.EndpointAddress) corev1.EndpointAddress {
	return corev1.EndpointAddress{ //nolint:staticcheck // see Objects
		IP: in.IP, Hostname: in.Hostname, NodeName: copyPtr(in.NodeName), TargetRef: with(in.TargetRef, objectReference),
	}
}

// StripServiceCIDR keeps the ranges and conditions.
func StripServiceCIDR(in *networkingv1.ServiceCIDR) networkingv1.ServiceCIDR {
	return networkingv1.ServiceCIDR{
		ObjectMeta: meta(&in.ObjectMeta),
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: copySlice(in.Spec.CIDRs)},
		Status:     networkingv1.ServiceCIDRStatus{Conditions: each(in.Status.Conditions, condition)},
	}
}

// StripIPAddress keeps the object that the address belongs to.
func StripIPAddress(in *networkingv1.IPAddress) networkingv1.IPAddress {
	return networkingv1.IPAddress{
		ObjectMeta: meta(&in.ObjectMeta),
		Spec: networkingv1.IPAddressSpec{ParentRef: with(in.Spec.ParentRef, func(p *networkingv1.ParentReference) networkingv1.ParentReference {
			return networkingv1.ParentReference{Group: p.Group, Resource: p.Resource, Namespace: p.Namespace, Name: p.Name}
		})},
	}
}
