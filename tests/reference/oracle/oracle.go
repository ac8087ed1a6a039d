// Package oracle determines where a pod may run and how well each node suits it, from Kubernetes' documentation alone.
// It is slow and simple on purpose: it loops over all nodes and all pods, has no index and no cache, and shares nothing
// with the scheduler that it is compared with. Draw makes random clusters for that comparison.
//
// It does not cover what a cluster of these objects cannot show: gates, queues and events. Of dynamic resource
// allocation, it covers only extended resources that a DeviceClass represents.
package oracle

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// World is a cluster as the API shows it. Pods with spec.nodeName run on their node, and pods that only have
// status.nominatedNodeName are nominated to it. Other pods, and those that have ended, are ignored.
type World struct {
	Nodes                  []*corev1.Node
	Pods                   []*corev1.Pod
	Namespaces             []*corev1.Namespace
	Services               []*corev1.Service
	ReplicationControllers []*corev1.ReplicationController
	ReplicaSets            []*appsv1.ReplicaSet
	StatefulSets           []*appsv1.StatefulSet
	Claims                 []*corev1.PersistentVolumeClaim
	Volumes                []*corev1.PersistentVolume
	Classes                []*storagev1.StorageClass
	CSINodes               []*storagev1.CSINode
	CSIDrivers             []*storagev1.CSIDriver
	Capacities             []*storagev1.CSIStorageCapacity
	Attachments            []*storagev1.VolumeAttachment
	Budgets                []*policyv1.PodDisruptionBudget
	DeviceClasses          []*resourcev1.DeviceClass
	Slices                 []*resourcev1.ResourceSlice
	DeviceClaims           []*resourcev1.ResourceClaim // claims with allocated devices

	Arguments Arguments
}

// Verdict is the result for one node.
type Verdict struct {
	Node           string
	Plugin         string   // the first filter that refuses the node, or "" if the pod fits
	Reasons        []string // in upstream's words
	IsUnresolvable bool     // removing pods would not help
	// Score is the weighted sum of the scores, normalized over the nodes that fit. It is 0 for other nodes.
	Score  int64
	Scores map[string]int64 // by plugin, normalized, before the weight; without plugins that skip the pod
}

// filterRefusal is the reason why a filter refuses a node. A nil refusal means that it admits the node.
type filterRefusal struct {
	plugin       string
	reasons      []string
	unresolvable bool
}

func newUnresolvable(reason string) *filterRefusal {
	return &filterRefusal{reasons: []string{reason}, unresolvable: true}
}
func newResolvable(reason string) *filterRefusal { return &filterRefusal{reasons: []string{reason}} }

// placedPod is a pod on a node.
type placedPod struct {
	pod  *corev1.Pod
	node *corev1.Node
}

// simulation is a World with the pods that are assumed to be on its nodes. Simulations add and remove pods.
type simulation struct {
	*World
	pods []placedPod
}

// prefilters refuse a pod on all nodes, before any filter, in the order of the default plugins.
var prefilters = []struct {
	plugin string
	refuse func(*simulation, *corev1.Pod) *filterRefusal
}{
	{"NodeAffinity", affinityTermsConflict},
	{"VolumeRestrictions", claimMissing},
	{"VolumeBinding", claimUnusable},
	{"VolumeZone", volumeMissing},
}

// filters are the filters of the default plugins in their order.
var filters = []struct {
	plugin string
	refuse func(*simulation, *corev1.Pod, *corev1.Node) *filterRefusal
}{
	{"NodeUnschedulable", nodeUnschedulable},
	{"NodeName", nodeName},
	{"TaintToleration", taintToleration},
	{"NodeAffinity", nodeAffinity},
	{"NodePorts", nodePorts},
	{"NodeResourcesFit", nodeResourcesFit},
	{"VolumeRestrictions", volumeRestrictions},
	{"NodeVolumeLimits", nodeVolumeLimits},
	{"VolumeBinding", volumeBinding},
	{"VolumeZone", volumeZone},
	{"PodTopologySpread", podTopologySpread},
	{"InterPodAffinity", interPodAffinity},
	{"DynamicResources", dynamicResources},
	{"NodeDeclaredFeatures", declaredFeatures},
}

// scorers are the default plugins with their weights. Each returns a score for each node, or nil to skip the pod.
var scorers = []struct {
	plugin string
	weight int64
	score  func(*simulation, *corev1.Pod, []*corev1.Node) []int64
}{
	{"TaintToleration", 3, taintTolerationScore},
	{"NodeAffinity", 2, nodeAffinityScore},
	{"NodeResourcesFit", 1, fitScore},
	{"VolumeBinding", 1, volumeBindingScore},
	{"PodTopologySpread", 2, podTopologySpreadScore},
	{"InterPodAffinity", 2, interPodAffinityScore},
	{"NodeResourcesBalancedAllocation", 1, balancedAllocationScore},
	{"ImageLocality", 1, imageLocalityScore},
}

// Evaluate returns the verdict on every node for the pod, in the order of w.Nodes.
func (w *World) Evaluate(pod *corev1.Pod) []Verdict {
	c := w.simulate(pod)
	verdicts := make([]Verdict, len(w.Nodes))
	var fit []*corev1.Node
	var at []int
	everywhere := c.prefilter(pod)
	for i, node := range w.Nodes {
		verdicts[i].Node = node.Name
		r := everywhere
		if r == nil {
			r = excludedByName(pod, node)
		}
		if r == nil {
			r = c.evaluate(pod, node)
		}
		if r != nil {
			verdicts[i].Plugin, verdicts[i].Reasons, verdicts[i].IsUnresolvable = r.plugin, r.reasons, r.unresolvable
			continue
		}
		verdicts[i].Scores = map[string]int64{}
		fit, at = append(fit, node), append(at, i)
	}
	for _, s := range scorers {
		for j, score := range s.score(c, pod, fit) {
			verdicts[at[j]].Scores[s.plugin] = score
			verdicts[at[j]].Score += s.weight * score
		}
	}
	return verdicts
}

// simulate returns a cluster with the pods that are bound to a node of the world and have not ended, except the pod to
// place.
func (w *World) simulate(pod *corev1.Pod) *simulation {
	c := &simulation{World: w}
	for _, p := range w.Pods {
		if node := w.node(p.Spec.NodeName); node != nil && !hasEnded(p) && !isSamePod(p, pod) {
			c.pods = append(c.pods, placedPod{p, node})
		}
	}
	return c
}

// prefilter returns a refusal if no node can take the pod.
func (c *simulation) prefilter(pod *corev1.Pod) *filterRefusal {
	for _, f := range prefilters {
		if r := f.refuse(c, pod); r != nil {
			r.plugin = f.plugin
			return r
		}
	}
	return nil
}

// evaluate returns the refusal of the first filter that refuses the node. It filters first with the pods of the same or
// a higher priority that are nominated to the node, because they are expected there. Then it filters without them,
// because they may not arrive.
func (c *simulation) evaluate(pod *corev1.Pod, node *corev1.Node) *filterRefusal {
	if nominated := c.nominatedPods(pod, node); len(nominated) > 0 {
		with := &simulation{World: c.World, pods: append(append([]placedPod{}, c.pods...), nominated...)}
		if r := with.filter(pod, node); r != nil {
			return r
		}
	}
	return c.filter(pod, node)
}

func (c *simulation) filter(pod *corev1.Pod, node *corev1.Node) *filterRefusal {
	for _, f := range filters {
		if r := f.refuse(c, pod, node); r != nil {
			r.plugin = f.plugin
			return r
		}
	}
	return nil
}

func (c *simulation) nominatedPods(pod *corev1.Pod, node *corev1.Node) []placedPod {
	var result []placedPod
	for _, p := range c.World.Pods {
		if p.Spec.NodeName == "" && p.Status.NominatedNodeName == node.Name && !hasEnded(p) && !isSamePod(p, pod) &&
			podPriority(p) >= podPriority(pod) {
			result = append(result, placedPod{p, node})
		}
	}
	return result
}

// podsOn returns the pods on a node.
func (c *simulation) podsOn(node *corev1.Node) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, p := range c.pods {
		if p.node == node {
			pods = append(pods, p.pod)
		}
	}
	return pods
}

func (w *World) node(name string) *corev1.Node {
	for _, n := range w.Nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

func isSamePod(a, b *corev1.Pod) bool { return a.Namespace == b.Namespace && a.Name == b.Name }
func hasEnded(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}
func podPriority(p *corev1.Pod) int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}
