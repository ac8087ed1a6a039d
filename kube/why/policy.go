package why

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/provision/packet"
)

// maxSenders is how many pods are tried as senders to a service.
const maxSenders = 100

// packetCluster returns what decides about packets of a namespace's pods.
func (x policyExplainer) packetCluster(ctx context.Context, namespace string) (*packet.Cluster, bool) {
	policies, isComplete := x.policies(ctx, namespace)
	c := &packet.Cluster{}
	for _, p := range policies {
		c.Policies = append(c.Policies, *p)
	}
	if len(c.Policies) > 0 {
		namespaces, _ := list[*corev1.Namespace](ctx, x.reader, "namespaces", "", x.core().Namespaces())
		for _, n := range namespaces {
			c.Namespaces = append(c.Namespaces, *n)
		}
	}
	return c, isComplete
}

func podAddress(p *corev1.Pod) netip.Addr {
	a, _ := netip.ParseAddr(p.Status.PodIP) // the zero address if it has none
	return a
}

// deniedService returns the finding of a service whose pods accept packets from no pod of their namespace, or nil.
func (x policyExplainer) deniedService(ctx context.Context, s *corev1.Service, targets []*corev1.Pod) *finding {
	cluster, _ := x.packetCluster(ctx, s.Namespace)
	if len(cluster.Policies) == 0 {
		return nil
	}
	target := targets[0]
	if target.Spec.HostNetwork {
		return nil
	}
	pods, _ := x.pods(ctx, s.Namespace)
	var senders []*corev1.Pod
	for _, p := range pods {
		if !slices.Contains(targets, p) && len(senders) < maxSenders {
			senders = append(senders, p)
		}
	}
	// A pod without labels stands for others that may be created.
	senders = append(senders, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace}})
	for _, port := range s.Spec.Ports {
		number, _ := targetPort(port, target)
		if number < 1 || number > 65535 {
			continue
		}
		protocol := string(port.Protocol)
		if protocol == "" {
			protocol = string(corev1.ProtocolTCP)
		}
		var denied []string
		for _, sender := range senders {
			denied = cluster.DeniedBy(target, sender, podAddress(sender), networkingv1.PolicyTypeIngress, target,
				protocol,
				uint16(number))
			if len(denied) == 0 {
				break
			}
		}
		if len(denied) == 0 {
			continue
		}
		return policyFinding(refTo("Service", s), refTo("Pod", target), denied, fmt.Sprintf(
			"let no pod of namespace %s in on port %d", s.Namespace, number))
	}
	return nil
}

// policyFinding returns the finding of an object whose packets policies drop.
func policyFinding(ref, pod Ref, policies []string, effect string) *finding {
	f := &finding{state: "is not reached", about: ref,
		reason: "network policies " + joinNames(policies) + " " + effect}
	if len(policies) == 1 {
		f.reason = "network policy " + policies[0] + " isolates its pods, and its rules " + effect
	}
	f.add(ref, "its pods are ready, but packets to them are dropped", "networkpolicies")
	policy := Ref{Group: "networking.k8s.io", Resource: "networkpolicies", Kind: "NetworkPolicy"}
	policy.Namespace, policy.Name, _ = strings.Cut(policies[0], "/")
	f.add(policy, fmt.Sprintf("it selects %s, and its rules %s", pod, effect), "spec.podSelector, spec.ingress")
	f.remedy(Remedy{Text: "Add a rule that lets the clients in.", Field: "spec.ingress of " + policy.String(),
		Command: "kubectl edit " + kubectlName(policy)},
		Remedy{Text: "Follow a packet from a client.", Command: "clusterctl debug network pod/" + pod.Namespace +
			"/CLIENT " + "service/" + ref.Namespace + "/" + ref.Name + ":PORT"})
	return f
}

var (
	lookupFailure = regexp.MustCompile(`(?i)no such host|name resolution|name or service not known|could not resolve|` +
		`getaddrinfo|EAI_AGAIN|NXDOMAIN|server misbehaving|UnknownHostException`)
	connectFailure = regexp.MustCompile(`(?i)i/o timeout|connection timed out|connect timeout|ETIMEDOUT|no route to host`)
)

// addNetworkTrouble adds what the last lines of a container suggest: names that cannot be resolved, and connections
// that time out because of a policy.
func (x policyExplainer) addNetworkTrouble(ctx context.Context, f *finding, p *corev1.Pod, words string) {
	isLookup := lookupFailure.MatchString(words)
	if !isLookup && !connectFailure.MatchString(words) {
		return
	}
	ref := refTo("Pod", p)
	if isLookup {
		x.addNameTrouble(ctx, f, p)
		return
	}
	if p.Spec.HostNetwork {
		return
	}
	cluster, _ := x.packetCluster(ctx, p.Namespace)
	var names []string
	for i := range cluster.Policies {
		one := &packet.Cluster{Policies: cluster.Policies[i : i+1]}
		names = append(names, one.DeniedBy(p, nil, netip.Addr{}, networkingv1.PolicyTypeEgress, nil, "TCP", 0)...)
	}
	if len(names) > 0 {
		f.add(ref, "its outgoing connections are limited by the network policies "+joinNames(names), "networkpolicies")
		f.remedy(Remedy{Text: "Allow the connection in an egress rule.", Command: "kubectl describe networkpolicies " +
			"-n " +
			p.Namespace})
	}
}

// addNameTrouble adds why a pod may not resolve names.
func (x policyExplainer) addNameTrouble(ctx context.Context, f *finding, p *corev1.Pod) {
	const dnsNamespace, dnsService = metav1.NamespaceSystem, "kube-dns"
	ref := refTo("Pod", p)
	if p.Spec.HostNetwork && (p.Spec.DNSPolicy == corev1.DNSClusterFirst || p.Spec.DNSPolicy == "") {
		f.reason += ", and it cannot resolve names of the cluster, because it uses the host's network with " +
			"dnsPolicy ClusterFirst"
		f.add(ref, "with hostNetwork, dnsPolicy ClusterFirst means the resolver of the node, which does not know "+
			"the cluster's names", "spec.dnsPolicy")
		f.remedy(Remedy{Text: "Use the cluster's resolver.", Command: x.template().editCommand(ctx, p),
			Field: x.template().field(ctx, p, "dnsPolicy: ClusterFirstWithHostNet")})
		return
	}
	if p.Spec.DNSPolicy == corev1.DNSDefault || p.Spec.DNSPolicy == corev1.DNSNone {
		f.add(ref, fmt.Sprintf("its dnsPolicy %s does not use the cluster's resolver", p.Spec.DNSPolicy),
			"spec.dnsPolicy")
		f.remedy(Remedy{Text: "Use the cluster's resolver.", Command: x.template().editCommand(ctx, p),
			Field: x.template().field(ctx, p, "dnsPolicy: ClusterFirst")})
		return
	}
	if e := findEvent(x.eventsOf(ctx, ref, p), "DNSConfigForming"); e != nil {
		f.add(ref, clause(e.Message), eventEvidence(e))
		f.remedy(Remedy{Text: "Shorten the pod's DNS configuration.", Field: x.template().field(ctx, p, "dnsConfig")})
	}
	all, isComplete := x.slices(ctx, dnsNamespace)
	if ready, _ := x.network().endpointsOf(ctx, dnsNamespace, dnsService); ready == 0 && isComplete {
		f.reason += ", and the cluster's resolver has no endpoints"
		f.add(kindRef("Service", dnsNamespace, dnsService), "it has no endpoint that is ready", "endpointslices")
		f.remedy(Remedy{Text: "Check kube-dns on the control-plane machines.", Command: "clusterctl status"})
		return
	}
	if p.Spec.HostNetwork {
		return
	}
	for _, s := range all {
		if s.Labels[discoveryv1.LabelServiceName] == dnsService {
			if policy, port := x.deniedResolver(ctx, p, s); policy != "" {
				addResolverPolicy(f, ref, policy, port)
				return
			}
		}
	}
}

// deniedResolver returns the policy that drops a pod's packets to all endpoints of a slice of the cluster's resolver,
// and the port of these; or "" if there is none.
func (x policyExplainer) deniedResolver(ctx context.Context, p *corev1.Pod,
	s *discoveryv1.EndpointSlice) (string, uint16) {
	port := uint16(53)
	if len(s.Ports) > 0 && s.Ports[0].Port != nil && *s.Ports[0].Port > 0 && *s.Ports[0].Port <= 65535 {
		port = uint16(*s.Ports[0].Port)
	}
	cluster, _ := x.packetCluster(ctx, p.Namespace)
	if len(cluster.Policies) == 0 {
		return "", port
	}
	policy := ""
	for _, e := range s.Endpoints {
		for _, text := range e.Addresses {
			at, err := netip.ParseAddr(text)
			if err != nil {
				continue
			}
			server := x.endpointPod(ctx, e)
			denied := cluster.DeniedBy(p, server, at, networkingv1.PolicyTypeEgress, server, "UDP", port)
			if len(denied) == 0 {
				return "", port
			}
			policy = denied[0]
		}
	}
	return policy, port
}

// addResolverPolicy adds that a policy drops a pod's packets to the cluster's resolver.
func addResolverPolicy(f *finding, pod Ref, name string, port uint16) {
	policy := Ref{Group: "networking.k8s.io", Resource: "networkpolicies", Kind: "NetworkPolicy"}
	policy.Namespace, policy.Name, _ = strings.Cut(name, "/")
	f.reason += ", and network policy " + name + " drops its DNS requests"
	f.add(policy, fmt.Sprintf(
		"it limits the outgoing packets of %s, and no rule allows UDP port %d to the cluster's resolver", pod, port),
		"spec.egress")
	f.remedy(Remedy{Text: fmt.Sprintf("Allow UDP and TCP port %d to kube-dns.", port),
		Field: "spec.egress of " + policy.String(), Command: "kubectl edit " + kubectlName(policy)})
}

// endpointPod returns the pod of an endpoint, or nil if it is none or cannot be read.
func (x policyExplainer) endpointPod(ctx context.Context, e discoveryv1.Endpoint) *corev1.Pod {
	if e.TargetRef == nil || e.TargetRef.Kind != "Pod" {
		return nil
	}
	pods, _ := x.pods(ctx, e.TargetRef.Namespace)
	for _, p := range pods {
		if p.Name == e.TargetRef.Name {
			return p
		}
	}
	return nil
}
