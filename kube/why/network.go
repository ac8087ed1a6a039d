package why

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func explainService(ctx context.Context, x explainer, ref Ref) (*finding, error) {
	s, err := read(ctx, ref, x.core().Services(ref.Namespace))
	if err != nil {
		return nil, err
	}
	return x.network().serviceFinding(ctx, s), nil
}

const noEndpoints = "has no endpoints"

// serviceFinding returns why a service does not reach its pods.
func (x networkExplainer) serviceFinding(ctx context.Context, s *corev1.Service) *finding {
	ref := refTo("Service", s)
	switch {
	case s.DeletionTimestamp != nil:
		return deletedOwner(ref, s)
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		return healthy("is an alias of %s", s.Spec.ExternalName)
	case len(s.Spec.Selector) == 0:
		return x.manualEndpoints(ctx, s)
	}
	pods, isComplete := x.pods(ctx, s.Namespace)
	var selected, ready []*corev1.Pod
	for _, p := range pods {
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed ||
			!labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(p.Labels)) {
			continue
		}
		selected = append(selected, p)
		if isReady(p) || s.Spec.PublishNotReadyAddresses {
			ready = append(ready, p)
		}
	}
	switch {
	case len(selected) == 0 && isComplete:
		return selectsNothing(s, pods)
	case len(selected) == 0:
		return x.manualEndpoints(ctx, s)
	case len(ready) == 0:
		f := x.workload().worstOf(ctx, selected)
		if f == nil {
			return broken(ref, noEndpoints, fmt.Sprintf("none of its %s is ready yet", count(len(selected), "pod")),
				"spec.selector", describeRemedy(refTo("Pod", selected[0])))
		}
		return f.below(ref, noEndpoints, fmt.Sprintf("it selects %s, and none is ready", count(len(selected), "pod")),
			"spec.selector")
	}
	if f := unservedPort(s, ready); f != nil {
		return f
	}
	if f := x.missingSlices(ctx, s, len(ready)); f != nil {
		return f
	}
	if f := x.policy().deniedService(ctx, s, ready); f != nil {
		return f
	}
	if f := x.missingAddress(ctx, s); f != nil {
		return f
	}
	return healthy("has %s that %s ready", count(len(ready), "endpoint"), are(len(ready)))
}

// selectsNothing explains a service whose selector matches no pod. Pods that lack one label only are named.
func selectsNothing(s *corev1.Service, pods []*corev1.Pod) *finding {
	ref := refTo("Service", s)
	selector := labels.Set(s.Spec.Selector).String()
	f := broken(ref, noEndpoints, fmt.Sprintf("no pod has the labels %s of its selector", selector), "spec.selector",
		Remedy{Text: "Correct the selector, or the labels of the pods.", Field: "spec.selector of " + ref.String(),
			Command: "kubectl edit " + kubectlName(ref)},
		Remedy{Text: "Compare with the labels of the pods.", Command: "kubectl get pods -n " + s.Namespace +
			" --show-labels"})
	for _, p := range pods {
		var differs []string
		for _, key := range sortedNames(s.Spec.Selector) {
			if p.Labels[key] != s.Spec.Selector[key] {
				differs = append(differs, key)
			}
		}
		if len(differs) != 1 {
			continue
		}
		key := differs[0]
		actual, ok := p.Labels[key]
		switch {
		case ok && (len(s.Spec.Selector) > 1 || similar(actual, s.Spec.Selector[key])):
			f.add(refTo("Pod", p), fmt.Sprintf("its label is %s=%s instead of %s=%s", key, actual, key,
				s.Spec.Selector[key]),
				"metadata.labels")
			return f
		case !ok && len(s.Spec.Selector) > 1:
			f.add(refTo("Pod", p), fmt.Sprintf("it does not have the label %s=%s", key, s.Spec.Selector[key]),
				"metadata.labels")
			return f
		}
	}
	return f
}

// similar reports whether one of two values may be a misspelling of the other.
func similar(a, b string) bool {
	a, b = strings.ToLower(a), strings.ToLower(b)
	n := min(len(a), len(b))
	common := 0
	for common < n && a[common] == b[common] {
		common++
	}
	return common > 0 && common >= max(len(a), len(b))/2
}

// unservedPort returns the finding of a service with a port that its pods do not have, or nil.
func unservedPort(s *corev1.Service, pods []*corev1.Pod) *finding {
	ref, p := refTo("Service", s), pods[0]
	var declared []string
	for _, c := range p.Spec.Containers {
		for _, port := range c.Ports {
			declared = append(declared, strings.TrimPrefix(port.Name+"="+fmt.Sprint(port.ContainerPort), "="))
		}
	}
	for _, port := range s.Spec.Ports {
		if _, ok := targetPort(port, p); ok {
			continue
		}
		text := fmt.Sprintf("the target port %s of its port %d is not a port of its pods", port.TargetPort.String(),
			port.Port)
		if len(declared) > 0 {
			text += ", which have " + joinNames(declared)
		}
		return broken(ref, "does not reach its pods", text, fmt.Sprintf("spec.ports[%d].targetPort", port.Port), Remedy{
			Text: "Correct the target port, or declare the port in the pods.", Field: fmt.Sprintf(
				"spec.ports[%d].targetPort of %s", port.Port, ref), Command: "kubectl edit " + kubectlName(ref)})
	}
	return nil
}

// targetPort returns the port of a pod that a port of a service leads to. Pods need not declare a numbered port, so a
// number is wrong only if the pod declares others.
func targetPort(port corev1.ServicePort, p *corev1.Pod) (int32, bool) {
	number, declares := port.TargetPort.IntVal, false
	if port.TargetPort.Type == intstr.Int && number == 0 {
		number = port.Port
	}
	for _, c := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers) {
		for _, own := range c.Ports {
			if cmp.Or(own.Protocol, corev1.ProtocolTCP) != cmp.Or(port.Protocol, corev1.ProtocolTCP) {
				continue
			}
			declares = true
			if port.TargetPort.Type == intstr.String && own.Name == port.TargetPort.StrVal ||
				number == own.ContainerPort &&
					port.TargetPort.Type == intstr.Int {
				return own.ContainerPort, true
			}
		}
	}
	return number, port.TargetPort.Type == intstr.Int && !declares
}

// endpointsOf returns how many endpoints of a service are ready.
func (x networkExplainer) endpointsOf(ctx context.Context, namespace, service string) (ready int, isComplete bool) {
	all, isComplete := x.slices(ctx, namespace)
	for _, slice := range all {
		if slice.Labels[discoveryv1.LabelServiceName] != service {
			continue
		}
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				ready++
			}
		}
	}
	return ready, isComplete
}

// missingSlices returns the finding of a service whose pods are ready and have no endpoints, or nil.
func (x networkExplainer) missingSlices(ctx context.Context, s *corev1.Service, pods int) *finding {
	ready, isComplete := x.endpointsOf(ctx, s.Namespace, s.Name)
	if ready > 0 || !isComplete {
		return nil
	}
	ref := refTo("Service", s)
	if e := findEvent(x.eventsOf(ctx, ref, s), "FailedToUpdateEndpointSlices", "FailedToCreateEndpoint"); e != nil {
		return broken(ref, noEndpoints, clause(e.Message), eventEvidence(e), describeRemedy(ref))
	}
	text := fmt.Sprintf("%s %s ready, and no controller has written endpoint slices", count(pods, "pod"), are(pods))
	if f := x.schedule().stoppedDaemon(ctx, "kube-controller-manager"); f != nil {
		return f.below(ref, noEndpoints, text, "endpointslices")
	}
	return broken(ref, noEndpoints, text, "endpointslices", Remedy{Text: "Check the control plane.",
		Command: "clusterctl status"})
}

// manualEndpoints explains a service without a selector, or whose pods cannot be read.
func (x networkExplainer) manualEndpoints(ctx context.Context, s *corev1.Service) *finding {
	ref := refTo("Service", s)
	ready, isComplete := x.endpointsOf(ctx, s.Namespace, s.Name)
	switch {
	case ready > 0:
		return healthy("has %s that %s ready", count(ready, "endpoint"), are(ready))
	case !isComplete:
		return broken(ref, "has an unknown state", "you may read neither its pods nor its endpoint slices",
			"rights of the caller", Remedy{Text: "Ask for the right to list them.",
				Command: "kubectl auth can-i list endpointslices.discovery.k8s.io -n " + s.Namespace})
	case len(s.Spec.Selector) > 0:
		return broken(ref, noEndpoints, "no pod that it selects is ready", "endpointslices", Remedy{
			Text: "Check the pods that it selects.", Command: "kubectl get pods -n " + s.Namespace + " -l " +
				labels.Set(s.Spec.Selector).String()})
	}
	return broken(ref, noEndpoints, "it has no selector, and no endpoint slice names it", "spec.selector", Remedy{
		Text: "Set a selector, or create an EndpointSlice with the label " + discoveryv1.LabelServiceName + "=" +
			s.Name + ".",
		Field: "spec.selector of " + ref.String(), Command: "kubectl edit " + kubectlName(ref)})
}

// missingAddress returns the finding of a service of type LoadBalancer that has no address, or nil.
func (x networkExplainer) missingAddress(ctx context.Context, s *corev1.Service) *finding {
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer || len(s.Status.LoadBalancer.Ingress) > 0 {
		return nil
	}
	ref := refTo("Service", s)
	const state = "has no external address"
	if e := findEvent(x.eventsOf(ctx, ref, s), "SyncLoadBalancerFailed", "AddressWithdrawn"); e != nil {
		return broken(ref, state, clause(e.Message), eventEvidence(e), Remedy{
			Text: "Declare an address pool with free addresses, and apply.", Command: "clusterctl apply"})
	}
	return broken(ref, state, "no load balancer has assigned one", "status.loadBalancer", Remedy{
		Text: "Declare an address pool for the service, or use another type.", Field: "spec.type of " + ref.String()})
}

func explainIngress(ctx context.Context, x explainer, ref Ref) (*finding, error) {
	i, err := read(ctx, ref, x.clients.Kubernetes.NetworkingV1().Ingresses(ref.Namespace))
	if err != nil {
		return nil, err
	}
	return x.network().ingressFinding(ctx, i), nil
}

const ingressState = "does not serve all its paths"

func (x networkExplainer) ingressFinding(ctx context.Context, i *networkingv1.Ingress) *finding {
	ref := refTo("Ingress", i)
	if i.DeletionTimestamp != nil {
		return deletedOwner(ref, i)
	}
	if f := x.ingressClass(ctx, i); f != nil {
		return f
	}
	for _, b := range ingressBackends(i) {
		if f := x.backendFinding(ctx, i, b); f != nil {
			return f
		}
	}
	for _, t := range i.Spec.TLS {
		if t.SecretName == "" {
			continue
		}
		secret := coreRef("secrets", "Secret", i.Namespace, t.SecretName)
		if _, existence := find(ctx, x.reader, secret, x.core().Secrets(i.Namespace)); existence == absent {
			return broken(ref, "has no certificate", fmt.Sprintf("the secret %s of its hosts %s does not exist",
				t.SecretName, joinNames(t.Hosts)), "spec.tls", Remedy{Text: "Create the secret with a certificate " +
				"and key.",
				Field: "spec.tls of " + ref.String(), Command: fmt.Sprintf(
					"kubectl create secret tls -n %s %s --cert=FILE --key=FILE", i.Namespace, t.SecretName)})
		}
	}
	if len(i.Status.LoadBalancer.Ingress) == 0 {
		return broken(ref, "has no address", "no ingress controller has accepted it", "status.loadBalancer", Remedy{
			Text: "Check that the controller of its class runs.", Command: "kubectl get ingressclasses"},
			describeRemedy(ref))
	}
	return healthy("is served, and the endpoints of all its services are ready")
}

// ingressClass returns the finding of an ingress without a valid class, or nil.
func (x networkExplainer) ingressClass(ctx context.Context, i *networkingv1.Ingress) *finding {
	ref := refTo("Ingress", i)
	classes, isComplete := list[*networkingv1.IngressClass](ctx, x.reader, "ingressclasses", "",
		x.clients.Kubernetes.NetworkingV1().IngressClasses())
	if !isComplete {
		return nil
	}
	var names []string
	for _, c := range classes {
		names = append(names, c.Name)
	}
	suffix := ""
	if len(names) > 0 {
		suffix = ": " + joinNames(names)
	}
	name := cmp.Or(ptrText(i.Spec.IngressClassName), i.Annotations["kubernetes.io/ingress.class"])
	remedy := Remedy{Text: "Name an existing class" + suffix + ".", Field: "spec.ingressClassName of " + ref.String(),
		Command: "kubectl edit " + kubectlName(ref)}
	switch {
	case name == "":
		return broken(ref, "is not served", "it names no ingress class and the cluster has no default one",
			"spec.ingressClassName", remedy)
	case !slices.Contains(names, name) && i.Spec.IngressClassName != nil:
		return broken(ref, "is not served", fmt.Sprintf("its ingress class %s does not exist", name),
			"spec.ingressClassName", remedy)
	}
	return nil
}

func ingressBackends(i *networkingv1.Ingress) (all []*networkingv1.IngressServiceBackend) {
	seen := map[networkingv1.IngressServiceBackend]bool{}
	add := func(b *networkingv1.IngressBackend) {
		if b != nil && b.Service != nil && !seen[*b.Service] {
			seen[*b.Service] = true
			all = append(all, b.Service)
		}
	}
	add(i.Spec.DefaultBackend)
	for _, rule := range i.Spec.Rules {
		if rule.HTTP != nil {
			for n := range rule.HTTP.Paths {
				add(&rule.HTTP.Paths[n].Backend)
			}
		}
	}
	return all
}

// backendFinding returns why a service of an ingress cannot answer, or nil.
func (x networkExplainer) backendFinding(
	ctx context.Context, i *networkingv1.Ingress, b *networkingv1.IngressServiceBackend,
) *finding {
	ref := refTo("Ingress", i)
	services, isComplete := x.services(ctx, i.Namespace)
	n := slices.IndexFunc(services, func(s *corev1.Service) bool { return s.Name == b.Name })
	if n < 0 {
		if !isComplete {
			return nil
		}
		return broken(ref, ingressState, fmt.Sprintf("its service %s/%s does not exist", i.Namespace, b.Name),
			"spec.rules", Remedy{Text: "Create the service, or correct its name.",
				Field:   "spec.rules of " + ref.String(),
				Command: "kubectl edit " + kubectlName(ref)})
	}
	s := services[n]
	var ports []string
	found := false
	for _, port := range s.Spec.Ports {
		ports = append(ports, strings.TrimPrefix(port.Name+"="+fmt.Sprint(port.Port), "="))
		found = found || b.Port.Name != "" && port.Name == b.Port.Name || b.Port.Name == "" &&
			port.Port == b.Port.Number
	}
	if !found && s.Spec.Type != corev1.ServiceTypeExternalName {
		return broken(ref, ingressState, fmt.Sprintf("service %s has no port %s; it has %s", s.Name,
			cmp.Or(b.Port.Name, fmt.Sprint(b.Port.Number)), joinNames(ports)), "spec.rules", Remedy{
			Text: "Correct the port.", Field: "spec.rules[*].http.paths[*].backend.service.port of " + ref.String(),
			Command: "kubectl edit " + kubectlName(ref)})
	}
	// An address of the service itself does not matter here.
	inside := s.DeepCopy()
	inside.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{}}
	if f := x.serviceFinding(ctx, inside); !f.isHealthy() {
		return f.below(ref, ingressState, fmt.Sprintf("its service %s %s", s.Name, f.state), "spec.rules")
	}
	return nil
}
