package kubelet

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"clusterctl/daemons/api"
	"clusterctl/daemons/kubelet/nodeagent"
	"clusterctl/daemons/kubelet/pod"
)

// checkAdmission returns why a new pod cannot run on this node, or nil. Pods of the scheduler normally fit. Pods that
// were assigned in another way, or concurrently, may not. misplaced is the result of k.checkPlacement, or nil. The
// caller holds k.pods.mu.
func (k *Kubelet) checkAdmission(p *corev1.Pod, misplaced *pod.End) *pod.End {
	if hasBegun(p) {
		return nil
	}
	if conditions := k.pressures.Update(nodeagent.Pressures{}, time.Now()).RejectingConditions(p); len(conditions) > 0 {
		reason := fmt.Sprintf("Pod was rejected: The node had condition: %v. ", conditions)
		return &pod.End{Phase: corev1.PodFailed, Reason: "Evicted", Message: reason, Rejected: true}
	}
	if k.agent.Node() == nil {
		return nil
	}
	if name, message := k.pods.missingResource(p, k.agent.Node().Status.Allocatable); name != "" {
		return &pod.End{
			Phase:    corev1.PodFailed,
			Reason:   "OutOf" + string(name),
			Message:  "Pod was rejected: " + message,
			Rejected: true,
		}
	}
	if misplaced == nil && k.pods.isPortTaken(p) {
		return schedulerRejection("NodePorts", "node(s) didn't have free ports for the requested pod ports")
	}
	return misplaced
}

// hasBegun reports whether a pod has already run here or has ended. Such a pod is not checked again.
func hasBegun(p *corev1.Pod) bool {
	return len(p.Status.ContainerStatuses) > 0 || p.Status.Phase == corev1.PodFailed ||
		p.Status.Phase == corev1.PodSucceeded
}

// schedulerRejection returns the rejection of a pod that the given scheduler plugin would not have placed here.
func schedulerRejection(plugin, reason string) *pod.End {
	return &pod.End{
		Phase:    corev1.PodFailed,
		Reason:   plugin,
		Message:  "Pod was rejected: Predicate " + plugin + " failed: " + reason,
		Rejected: true,
	}
}

// nodeReadTimeout limits how long reading the node may take, because other pods wait meanwhile.
const nodeReadTimeout = 2 * time.Second

// checkPlacement returns why a new pod does not suit this node, or nil. Before it rejects a pod, it reads the node from
// the API: the scheduler may have used a newer state of the node, and a rejected pod fails for good. If the node cannot
// be read, no pod is rejected.
func (k *Kubelet) checkPlacement(ctx context.Context, p *corev1.Pod) *pod.End {
	if hasBegun(p) || p.DeletionTimestamp != nil || pod.IsStatic(p) {
		return nil
	}
	k.pods.mu.Lock()
	node, isKnown := k.agent.Node(), k.pods.workers[p.UID] != nil
	k.pods.mu.Unlock()
	if node == nil || isKnown || nodeMismatch(p, node) == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, nodeReadTimeout)
	defer cancel()
	now, err := k.client.CoreV1().Nodes().Get(ctx, k.name, metav1.GetOptions{})
	if err != nil {
		k.env.Log.Warn("see whether the node suits a pod, which is taken", "pod", p.Namespace+"/"+p.Name, "error", err)
		return nil
	}
	return nodeMismatch(p, now)
}

// nodeMismatch returns which node affinity of a pod the node does not match, or which NoExecute taint the pod does not
// tolerate.
func nodeMismatch(p *corev1.Pod, node *corev1.Node) *pod.End {
	if match, err := nodeaffinity.GetRequiredNodeAffinity(p).Match(node); err != nil || !match {
		return schedulerRejection("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
	}
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		tolerates := func(t corev1.Toleration) bool { return api.Tolerates(&t, taint) }
		if taint.Effect == corev1.TaintEffectNoExecute && !slices.ContainsFunc(p.Spec.Tolerations, tolerates) {
			return schedulerRejection("TaintToleration", "node(s) had taints that the pod didn't tolerate")
		}
	}
	return nil
}

// isPortTaken reports whether another pod uses a host port that the pod wants. The caller holds s.mu.
func (s *podWorkers) isPortTaken(p *corev1.Pod) bool {
	wanted := api.HostPorts(p)
	if len(wanted) == 0 {
		return false
	}
	for other := range s.otherPods(p.UID) {
		for _, taken := range api.HostPorts(other) {
			if slices.ContainsFunc(wanted, taken.Conflicts) {
				return true
			}
		}
	}
	return false
}

// otherPods yields the pods that use resources of this node, except for one. Pods that the API no longer has are left
// out, even if they still terminate here, because the scheduler has already given away their resources. The caller
// holds s.mu.
func (s *podWorkers) otherPods(but types.UID) iter.Seq[*corev1.Pod] {
	return func(yield func(*corev1.Pod) bool) {
		for _, w := range s.workers {
			w.inbox.mu.Lock()
			other := w.inbox.pod
			isOver := w.inbox.removed || w.inbox.evicted != nil || other.Status.Phase == corev1.PodFailed ||
				other.Status.Phase == corev1.PodSucceeded
			w.inbox.mu.Unlock()
			if !isOver && other.UID != but && !yield(other) {
				return
			}
		}
	}
}

// missingResource returns the resource that the node cannot give a pod besides the other pods, with a message. It
// returns "" if the pod fits. room is what the node's status reports as allocatable. The caller holds s.mu.
func (s *podWorkers) missingResource(
	p *corev1.Pod,
	room corev1.ResourceList,
) (what corev1.ResourceName, message string) {
	if len(room) == 0 {
		return "", ""
	}
	used := corev1.ResourceList{}
	pods := int64(0)
	for other := range s.otherPods(p.UID) {
		pods++
		for name, q := range resource.PodRequests(other, resource.PodResourcesOptions{}) {
			sum := used[name]
			sum.Add(q)
			used[name] = sum
		}
	}
	if limit := room.Pods().Value(); limit > 0 && pods >= limit {
		return corev1.ResourcePods, shortageMessage(corev1.ResourcePods, 1, pods, limit)
	}
	for name, q := range resource.PodRequests(p, resource.PodResourcesOptions{}) {
		current, ok := room[name]
		// An extended resource that is unknown here may have been added to the node's status a moment ago. The
		// scheduler relies on that status.
		if q.IsZero() || !ok && (name == corev1.ResourceEphemeralStorage || nodeagent.IsExtended(name)) {
			continue
		}
		sum := used[name]
		before := sum.DeepCopy()
		sum.Add(q)
		if sum.Cmp(current) > 0 {
			if name == corev1.ResourceCPU {
				return name, shortageMessage(name, q.MilliValue(), before.MilliValue(), current.MilliValue())
			}
			return name, shortageMessage(name, q.Value(), before.Value(), current.Value())
		}
	}
	return "", ""
}

func shortageMessage(name corev1.ResourceName, requested, used, capacity int64) string {
	return fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", name, requested,
		used, capacity)
}
