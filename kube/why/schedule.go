package why

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

const notScheduled = "is not scheduled"

// unscheduledPod returns why a pod has no node.
func (x scheduleExplainer) unscheduledPod(ctx context.Context, p *corev1.Pod) *finding {
	ref := refTo("Pod", p)
	if len(p.Spec.SchedulingGates) > 0 {
		var names []string
		for _, g := range p.Spec.SchedulingGates {
			names = append(names, g.Name)
		}
		return broken(ref, notScheduled, "its scheduling gates have not been removed: "+joinNames(names),
			"spec.schedulingGates", Remedy{Text: "Check the controller that removes the gate.",
				Field: "spec.schedulingGates of " + ref.String()})
	}
	events := x.eventsOf(ctx, ref, p)
	message, evidence := "", "status.conditions[PodScheduled]"
	if c := podCondition(p, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse {
		message = c.Message
	}
	if e := findEvent(events, "FailedScheduling"); e != nil && message == "" {
		message, evidence = e.Message, eventEvidence(e)
	}
	if message == "" {
		return x.ignoredPod(ctx, p)
	}
	message, _, _ = strings.Cut(message, " preemption: ") // it repeats the number of nodes
	if strings.Contains(message, "persistentvolumeclaim") || strings.Contains(message, "PersistentVolumeClaim") ||
		strings.Contains(message, "persistent volumes to bind") {
		if f := x.storage().unboundClaim(ctx, p); f != nil {
			return f.below(ref, notScheduled, "the scheduler waits for its volumes: "+message, evidence)
		}
	}
	f := x.refusals(ctx, p, message)
	f.steps = append([]Step{{Object: ref, Text: sentence("the scheduler reports: " + message), Evidence: evidence}},
		f.steps...)
	return f
}

// staleLease is the age from which a lease belongs to a program that does not run.
const staleLease = time.Minute

// ignoredPod explains a pod that no scheduler has looked at.
func (x scheduleExplainer) ignoredPod(ctx context.Context, p *corev1.Pod) *finding {
	ref := refTo("Pod", p)
	name := cmp.Or(p.Spec.SchedulerName, corev1.DefaultSchedulerName)
	if name != corev1.DefaultSchedulerName {
		return broken(ref, notScheduled, fmt.Sprintf("no scheduler with the name %s has considered it", name),
			"spec.schedulerName", Remedy{Text: "Start that scheduler, or remove the name.",
				Field: x.template().field(ctx, p, "schedulerName"), Command: x.template().editCommand(ctx, p)})
	}
	if f := x.stoppedDaemon(ctx, "kube-scheduler"); f != nil {
		return f.below(ref, notScheduled, "no scheduler has considered it", "status.conditions")
	}
	return broken(ref, notScheduled, "the scheduler has not considered it yet", "status.conditions", Remedy{
		Text: "Ask again in a few seconds.", Command: "clusterctl why -n " + p.Namespace + " pod/" + p.Name})
}

// stoppedDaemon returns the finding of a control-plane daemon whose lease is not renewed, or nil.
func (x scheduleExplainer) stoppedDaemon(ctx context.Context, name string) *finding {
	ref := Ref{Group: "coordination.k8s.io", Resource: "leases", Kind: "Lease", Namespace: "kube-system", Name: name}
	lease, existence := find[*coordinationv1.Lease](ctx, x.reader, ref,
		x.clients.Kubernetes.CoordinationV1().Leases("kube-system"))
	if existence != present || lease.Spec.RenewTime == nil {
		return nil
	}
	age := x.now.Sub(lease.Spec.RenewTime.Time)
	if age < staleLease {
		return nil
	}
	return broken(ref, "is not renewed", fmt.Sprintf("no %s has been running for %s", name,
		duration.HumanDuration(age)), "spec.renewTime",
		Remedy{Text: "Check the control-plane machines.", Command: "clusterctl status"},
		Remedy{Text: "Read its log on a control-plane machine.", Command: "clusterctl ssh MACHINE journalctl -u " +
			name + " -n 50"})
}

// refusal is a reason for which nodes cannot take a pod.
type refusal struct {
	text   string // about the nodes
	nodes  []string
	remedy Remedy
}

// refusals returns why the nodes cannot take a pod. If they cannot be read, the scheduler's message is the reason.
func (x scheduleExplainer) refusals(ctx context.Context, p *corev1.Pod, message string) *finding {
	f := &finding{state: notScheduled, about: refTo("Pod", p)}
	nodes, isComplete := x.nodes(ctx)
	if isComplete && len(nodes) == 0 {
		f.reason = "the cluster has no nodes"
		f.remedy(Remedy{Text: "Declare machines with the role worker, and apply.", Command: "clusterctl apply"})
		return f
	}
	var found []*refusal
	add := func(node, text string, remedy Remedy) {
		for _, one := range found {
			if one.text == text {
				one.nodes = append(one.nodes, node)
				return
			}
		}
		found = append(found, &refusal{text, []string{node}, remedy})
	}
	var free map[string]corev1.ResourceList
	if len(nodes) > 0 {
		free = x.freeResources(ctx, nodes)
	}
	for _, n := range nodes {
		x.refuse(ctx, p, n, free[n.Name], func(text string, remedy Remedy) { add(n.Name, text, remedy) })
	}
	// Nodes that lack only room, or only a label, are nearer to a solution than those with several reasons.
	slices.SortStableFunc(found, func(a, b *refusal) int { return cmp.Compare(len(b.nodes), len(a.nodes)) })
	const maxRefusals = 4
	var reasons []string
	for i, one := range found {
		if i == maxRefusals {
			break
		}
		noun := "node "
		if len(one.nodes) > 1 {
			noun = "nodes "
		}
		text := noun + joinNames(one.nodes) + ": " + one.text
		reasons = append(reasons, text)
		f.add(kindRef("Node", "", one.nodes[0]), text, "spec and status of the node, requests of its pods")
		f.remedy(one.remedy)
	}
	if len(reasons) > 0 {
		f.reason = "no node can take it: " + strings.Join(reasons, "; ")
		return f
	}
	f.reason = clause(message)
	f.remedy(x.remedyByMessage(ctx, p, message)...)
	return f
}

// refuse calls add for each reason for which a node cannot take a pod.
func (x scheduleExplainer) refuse(
	ctx context.Context, p *corev1.Pod, n *corev1.Node, free corev1.ResourceList, add func(string, Remedy),
) {
	if n.Spec.Unschedulable {
		add("it is cordoned", Remedy{Text: "Allow pods on node " + n.Name + " again.",
			Command: "kubectl uncordon " + n.Name})
	}
	for _, t := range n.Spec.Taints {
		if t.Effect == corev1.TaintEffectPreferNoSchedule || tolerates(p, t) || t.Key == corev1.TaintNodeUnschedulable {
			continue
		}
		remedy := Remedy{Text: "Tolerate the taint " + t.Key + ", or remove it from the node.",
			Field:   x.template().field(ctx, p, "tolerations"),
			Command: "kubectl taint nodes " + n.Name + " " + t.Key + ":" + string(t.Effect) + "-"}
		if strings.HasPrefix(t.Key, "node.kubernetes.io/") {
			remedy = Remedy{Text: "Find out what is wrong with node " + n.Name + ".", Command: "clusterctl why node/" +
				n.Name}
		}
		add("the pod does not tolerate the taint "+t.ToString(), remedy)
	}
	if match, err := nodeaffinity.GetRequiredNodeAffinity(p).Match(n); err != nil || !match {
		text := "its labels do not match the pod's node affinity"
		if missing := missingLabels(p.Spec.NodeSelector, n.Labels); missing != "" {
			text = "it does not have the label " + missing + " of the pod's node selector"
		}
		label := Remedy{Text: "Change the node selector or affinity, or label a node.",
			Field: x.template().field(ctx, p, "nodeSelector"), Command: "kubectl label node " + n.Name + " KEY=VALUE"}
		add(text, label)
	}
	if free == nil { // the pods of the node are not known
		free = n.Status.Allocatable
	}
	if room, ok := free[corev1.ResourcePods]; ok && room.Sign() <= 0 {
		add(fmt.Sprintf("it has all of its %s pods", quantity(n.Status.Allocatable[corev1.ResourcePods])),
			Remedy{Text: "Delete pods, or add a node."})
	}
	requests := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
	for _, name := range sortedNames(requests) {
		want, available := requests[name], free[name]
		allocatable := n.Status.Allocatable[name]
		if want.IsZero() || want.Cmp(available) <= 0 {
			continue
		}
		text := fmt.Sprintf("the pod requests %s %s, and %s of %s is free", want.String(), name, available.String(),
			allocatable.String())
		add(text, Remedy{Text: fmt.Sprintf("Request less %s, free some, or add a node.", name),
			Field:   x.template().field(ctx, p, "containers[*].resources.requests."+string(name)),
			Command: x.template().setCommand(ctx, p, "resources", "CONTAINER", "--requests="+string(name)+"=AMOUNT")})
	}
}

func tolerates(p *corev1.Pod, taint corev1.Taint) bool {
	return slices.ContainsFunc(p.Spec.Tolerations, func(t corev1.Toleration) bool {
		return t.ToleratesTaint(klog.Background(), &taint, true)
	})
}

// missingLabels returns the first pair of a selector that labels do not have, or "".
func missingLabels(selector, labels map[string]string) string {
	for _, key := range sortedNames(selector) {
		if labels[key] != selector[key] {
			return key + "=" + selector[key]
		}
	}
	return ""
}

func quantity(q resource.Quantity) string { return q.String() }

func sortedNames[K cmp.Ordered, V any](m map[K]V) []K {
	var names []K
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// freeResources returns what is left of each node's allocatable resources. It is nil if the pods cannot be listed.
func (x scheduleExplainer) freeResources(ctx context.Context, nodes []*corev1.Node) map[string]corev1.ResourceList {
	pods, isComplete := x.pods(ctx, "")
	if !isComplete {
		return nil
	}
	free := map[string]corev1.ResourceList{}
	for _, n := range nodes {
		free[n.Name] = n.Status.Allocatable.DeepCopy()
	}
	for _, p := range pods {
		left := free[p.Spec.NodeName]
		if left == nil || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		for name, amount := range resourcehelper.PodRequests(p,
			resourcehelper.PodResourcesOptions{UseStatusResources: true}) {
			rest := left[name]
			rest.Sub(amount)
			left[name] = rest
		}
		rest := left[corev1.ResourcePods]
		rest.Sub(*resource.NewQuantity(1, resource.DecimalSI))
		left[corev1.ResourcePods] = rest
	}
	return free
}

var insufficient = regexp.MustCompile(`Insufficient ([a-z0-9./-]+[a-z0-9])`)

// remedyByMessage returns remedies for the reasons in the scheduler's message.
func (x scheduleExplainer) remedyByMessage(ctx context.Context, p *corev1.Pod, message string) (list []Remedy) {
	for _, one := range []struct{ words, text, field string }{
		{"untolerated taint", "Tolerate the taint, or remove it from a node.", "tolerations"},
		{"node affinity/selector", "Change the node selector or affinity, or label a node.", "nodeSelector"},
		{"pod affinity rules", "Change the pod affinity, or start the pods that it refers to.", "affinity.podAffinity"},
		{"pod anti-affinity rules", "Use fewer replicas, more nodes, or preferred anti-affinity.",
			"affinity.podAntiAffinity"},
		{"topology spread constraints", "Allow more skew, or label the nodes.", "topologySpreadConstraints"},
		{"free ports", "Use another host port, or fewer replicas than nodes.", "containers[*].ports"},
		{"Too many pods", "Delete pods, or add a node.", ""},
		{"were unschedulable", "Allow pods on a cordoned node with kubectl uncordon.", ""},
		{"persistent volumes to bind", "Check the pod's claims.", "volumes"},
		{"volume node affinity", "Free the node that has the volume.", "volumes"},
		{"volume zone", "Add a node in the zone of the volume.", "volumes"},
	} {
		if strings.Contains(message, one.words) {
			m := Remedy{Text: one.text}
			if one.field != "" {
				m.Field = x.template().field(ctx, p, one.field)
			}
			list = append(list, m)
		}
	}
	for _, m := range insufficient.FindAllStringSubmatch(message, maxRemedies) {
		list = append(list, Remedy{Text: fmt.Sprintf("Request less %s, free some, or add a node.", m[1]),
			Field: x.template().field(ctx, p, "containers[*].resources.requests."+m[1])})
	}
	if len(list) == 0 {
		list = append(list, describeRemedy(refTo("Pod", p)))
	}
	return list
}

// kindRef returns a reference to an object of an explained kind by its name.
func kindRef(kind, namespace, name string) Ref {
	return refTo(kind, &metav1.ObjectMeta{Namespace: namespace, Name: name})
}
