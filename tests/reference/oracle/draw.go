package oracle

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// Names that drawn objects share. They are few, so that objects often refer to each other.
var (
	namespaces = []string{"a", "b", "c"}
	zones      = []string{"za", "zb", "zc"}
	apps       = []string{"web", "db"}
	images     = []struct {
		name string
		size int64
	}{{"small", 5 << 20}, {"base", 300 << 20}, {"registry.example/model", 4000 << 20},
		{"registry.example:5000/app", 900 << 20}}
	firstStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

// gpu is an extended resource. driver and ebsDriver are CSI drivers.
const (
	gpu       = corev1.ResourceName("example.com/gpu")
	driver    = "csi.example.com"
	ebsDriver = "ebs.csi.aws.com"
)

// draws makes random decisions. All of them shrink to the simplest case.
type draws struct{ *rapid.T }

func (d draws) upTo(n int, label string) int   { return rapid.IntRange(0, n).Draw(d.T, label) }
func (d draws) oneIn(n int, label string) bool { return d.upTo(n-1, label) == n-1 }

func pickOne[E any](d draws, label string, of ...E) E { return of[d.upTo(len(of)-1, label)] }

// namespace returns mostly the same namespace, so that drawn objects affect each other.
func (d draws) namespace() string { return pickOne(d, "namespace", "a", "a", "a", "b", "c") }

// count returns how often to do something, which is mostly 0.
func (d draws) count(most int, label string) int {
	if !d.oneIn(3, label) {
		return 0
	}
	return 1 + d.upTo(most-1, label)
}

// Draw draws a cluster with up to 8 nodes and 25 pods, and up to 4 pods to place.
func Draw(t *rapid.T) (*World, []*corev1.Pod) {
	d := draws{t}
	w := &World{}
	for _, name := range namespaces {
		ns := &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}},
		}
		if d.oneIn(2, "namespace label") {
			ns.Labels["team"] = pickOne(d, "team", "x", "y")
		}
		w.Namespaces = append(w.Namespaces, ns)
	}
	for i := range 1 + d.upTo(3, "nodes") + d.upTo(4, "more nodes") {
		w.Nodes = append(w.Nodes, d.node(fmt.Sprintf("n%d", i)))
	}
	d.controllers(w)
	d.storage(w)
	d.arguments(w)
	running, waiting := d.upTo(9, "pods")+d.upTo(8, "more pods")+d.upTo(8, "yet more pods"), 1+d.upTo(3,
		"pods to place")
	for i := range running {
		w.Pods = append(w.Pods, d.running(w, fmt.Sprintf("e%d", i), i))
	}
	var place []*corev1.Pod
	for i := range waiting {
		place = append(place, DrawPod(t, w, fmt.Sprintf("p%d", i)))
	}
	d.devices(w)
	return w, place
}

func (d draws) node(name string) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{}},
	}
	if !d.oneIn(16, "no hostname") {
		n.Labels[corev1.LabelHostname] = name
	}
	if !d.oneIn(8, "no zone") {
		n.Labels[corev1.LabelTopologyZone] = pickOne(d, "zone", zones...)
	}
	if d.oneIn(3, "region") {
		n.Labels[corev1.LabelTopologyRegion] = pickOne(d, "which region", "ra", "rb")
	}
	if d.oneIn(2, "disk") {
		n.Labels["disk"] = pickOne(d, "which disk", "ssd", "hdd")
	}
	if d.oneIn(2, "generation") {
		n.Labels["generation"] = pickOne(d, "which generation", "1", "5", "9", "old")
	}
	n.Spec.Unschedulable = d.oneIn(16, "unschedulable")
	for range d.count(1, "taints") * d.upTo(2, "how many taints") {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{
			Key: pickOne(d, "taint", "k1", "k2"), Value: pickOne(d, "taint value", "", "3", "7", "x"),
			Effect: pickOne(d, "effect", corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectPreferNoSchedule,
				corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute),
		})
	}
	has := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse(pickOne(d, "cpu", "4", "8", "16", "2", "1")),
		corev1.ResourceMemory: resource.MustParse(pickOne(d, "memory", "8Gi", "16Gi", "4Gi", "2Gi", "1000Mi")),
		corev1.ResourcePods:   resource.MustParse(pickOne(d, "room for pods", "110", "20", "6", "4")),
	}
	if !d.oneIn(8, "no storage") {
		has[corev1.ResourceEphemeralStorage] = resource.MustParse(pickOne(d, "storage", "10Gi", "2Gi"))
	}
	if d.oneIn(2, "gpu") {
		has[gpu] = resource.MustParse(pickOne(d, "gpus", "4", "2", "1", "0"))
	}
	if d.oneIn(2, "huge pages") {
		has[corev1.ResourceHugePagesPrefix+"2Mi"] = resource.MustParse("64Mi")
	}
	n.Status.Allocatable, n.Status.Capacity = has, has
	if d.oneIn(2, "features") {
		n.Status.DeclaredFeatures = []string{"Other", restartAllFeature}
	}
	for _, image := range images {
		if d.oneIn(3, "image") {
			n.Status.Images = append(n.Status.Images, corev1.ContainerImage{
				Names: []string{image.name + "@sha256:0", image.name + ":latest"}, SizeBytes: image.size,
			})
		}
	}
	return n
}

// controllers draws the services, owners and disruption budgets of pods.
func (d draws) controllers(w *World) {
	meta := func(kind string, i int) metav1.ObjectMeta {
		name := fmt.Sprintf("%s%d", kind, i)
		return metav1.ObjectMeta{Namespace: d.namespace(), Name: name, UID: types.UID("uid-" + name)}
	}
	for i := range d.upTo(2, "services") {
		s := &corev1.Service{ObjectMeta: meta("service", i)}
		if !d.oneIn(4, "no selector") {
			s.Spec.Selector = map[string]string{"app": pickOne(d, "app", apps...)}
		}
		w.Services = append(w.Services, s)
	}
	for i := range d.upTo(1, "rcs") {
		w.ReplicationControllers = append(
			w.ReplicationControllers,
			&corev1.ReplicationController{ObjectMeta: meta("rc", i),
				Spec: corev1.ReplicationControllerSpec{Selector: map[string]string{"app": pickOne(d, "app", apps...)}}},
		)
	}
	for i := range d.upTo(2, "rss") {
		w.ReplicaSets = append(w.ReplicaSets, &appsv1.ReplicaSet{ObjectMeta: meta("rs", i),
			Spec: appsv1.ReplicaSetSpec{Selector: d.selector()}})
	}
	for i := range d.upTo(1, "sss") {
		w.StatefulSets = append(w.StatefulSets, &appsv1.StatefulSet{ObjectMeta: meta("ss", i),
			Spec: appsv1.StatefulSetSpec{Selector: d.selector()}})
	}
	for i := range 1 + d.upTo(3, "budgets") {
		b := &policyv1.PodDisruptionBudget{
			ObjectMeta: meta("budget", i),
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: d.selector()},
		}
		b.Status.DisruptionsAllowed = int32(d.upTo(2, "allowed"))
		if d.oneIn(8, "empty selector") {
			b.Spec.Selector = &metav1.LabelSelector{}
		}
		if d.oneIn(4, "disrupted") {
			b.Status.DisruptedPods = map[string]metav1.Time{
				fmt.Sprintf("e%d", d.upTo(9, "which")): metav1.NewTime(firstStart),
			}
		}
		w.Budgets = append(w.Budgets, b)
	}
}

// selector returns a selector of pods by their app, or with more requirements.
func (d draws) selector() *metav1.LabelSelector {
	app := pickOne(d, "app", apps...)
	switch d.upTo(7, "selector") {
	case 0, 1, 2, 3:
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	case 4:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: apps}}}
	case 5:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{app}}}}
	case 6:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "tier", Operator: metav1.LabelSelectorOpDoesNotExist}}}
	default:
		return &metav1.LabelSelector{
			MatchLabels: map[string]string{"app": app},
			MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "tier", Operator: metav1.LabelSelectorOpExists}},
		}
	}
}

// running returns a pod on a node, or nominated to a node. It may not fit there.
func (d draws) running(w *World, name string, nth int) *corev1.Pod {
	p := DrawPod(d.T, w, name)
	node := pickOne(d, "on", w.Nodes...).Name
	if d.oneIn(8, "nominated") {
		p.Status.NominatedNodeName = node
		p.Status.Phase = corev1.PodPending
		return p
	}
	p.Status.NominatedNodeName = ""
	p.Spec.NodeName = node
	p.Status.Phase = corev1.PodRunning
	start := metav1.NewTime(firstStart.Add(time.Duration(d.upTo(9, "started")*100+nth) * time.Second))
	p.Status.StartTime = &start
	switch {
	case d.oneIn(16, "ended"):
		p.Status.Phase = pickOne(d, "phase", corev1.PodSucceeded, corev1.PodFailed)
	case d.oneIn(8, "ending"):
		p.DeletionTimestamp = &start
		if d.oneIn(2, "preempted") {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
				Reason: corev1.PodReasonPreemptionByScheduler})
		}
	}
	if d.oneIn(6, "resized") {
		d.resize(p)
	}
	return p
}

// resize sets a status with other resources than the pod requests, as a kubelet reports during a resize.
func (d draws) resize(p *corev1.Pod) {
	if d.oneIn(2, "pending") {
		p.Status.Conditions = append(
			p.Status.Conditions,
			corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue,
				Reason: pickOne(d, "reason", corev1.PodReasonDeferred, corev1.PodReasonInfeasible)},
		)
	}
	for _, c := range p.Spec.Containers {
		s := corev1.ContainerStatus{Name: c.Name}
		if d.oneIn(2, "allotted") {
			s.AllocatedResources = d.requests()
		}
		if d.oneIn(2, "in force") {
			s.Resources = &corev1.ResourceRequirements{Requests: d.requests()}
		}
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, s)
	}
	if p.Spec.Resources != nil && d.oneIn(2, "as a whole") {
		p.Status.Resources = &corev1.ResourceRequirements{Requests: d.requests()}
		p.Status.AllocatedResources = p.Status.Resources.Requests
	}
}
