package housekeeping

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/kubelet/pod"
)

// Pod is a pod of this node at the time of a snapshot.
type Pod struct {
	Pod        *corev1.Pod
	Removed    bool     // its source no longer has it
	Evicted    *pod.End // why the kubelet has ended it, or nil
	EvictedAt  time.Time
	Released   bool // its volumes and its cgroup are gone
	Containers []pod.Container
}

// Pods is what housekeeping needs of the pods of this node.
type Pods interface {
	// Snapshot returns all pods.
	Snapshot() []Pod
	// Known returns the UIDs of all pods that may have something on this node. It returns false until every source of
	// pods has been read completely.
	Known() (map[string]bool, bool)
	// Evict ends a pod. It does nothing for a pod that is gone.
	Evict(uid types.UID, end *pod.End, at time.Time)
	// Discard has the containers of an ended pod removed.
	Discard(uid types.UID)
	// Report records a warning event about a pod.
	Report(p *corev1.Pod, reason, message string)
}

func (p *Pod) hasEnded() bool {
	return p.Pod.Status.Phase == corev1.PodFailed || p.Pod.Status.Phase == corev1.PodSucceeded
}

// canDiscard reports whether a pod has ended and its containers can be removed with all their data.
func (p *Pod) canDiscard() bool { return p.hasEnded() && p.Released && !pod.IsStatic(p.Pod) }

// hasContainersLeft reports whether a pod has ended and still has containers.
func hasContainersLeft(p Pod) bool { return p.canDiscard() && len(p.Containers) > 0 }

func podName(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }
