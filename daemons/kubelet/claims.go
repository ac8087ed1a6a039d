package kubelet

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/kubelet/metrics"
	"clusterctl/daemons/kubelet/usage"
)

// claimUsageByPod returns the usage of claim volumes by pod UID.
func (k *Kubelet) claimUsageByPod() map[types.UID][]usage.Claim {
	var pods []*corev1.Pod
	for _, w := range k.pods.all() {
		w.inbox.mu.Lock()
		pods = append(pods, w.inbox.pod)
		w.inbox.mu.Unlock()
	}
	return k.claimUsage.UsageByPod(pods)
}

// recordHangingVolume reports a volume that does not respond by events on the pods that mount it.
func (k *Kubelet) recordHangingVolume(all []usage.Mounted, claim string, since time.Duration) {
	k.env.Log.Warn("a volume does not respond", "namespace", all[0].Pod.Namespace, "claim", claim, "since",
		since.Round(time.Second))
	for _, at := range all {
		k.events.record(at.Pod, corev1.EventTypeWarning, "VolumeNotResponding",
			"volume %q of claim %q has not responded for %s: its disk or server hangs",
			at.Volume.Name, claim, since.Round(time.Second))
	}
}

// recordUnbounded reports once that volumes are not limited to their size.
func (k *Kubelet) recordUnbounded(name string, cause error) {
	k.unboundedOnce.Do(func() {
		k.env.Log.Warn("volumes are not held to their size", "first", name, "reason", cause)
		ref := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: k.name, UID: types.UID(k.name)}
		k.events.recorder.Eventf(ref, corev1.EventTypeWarning, "VolumesNotBounded",
			"volumes of this node, %s the first, are not held to their size: %v", name, cause)
	})
}

// states returns the state of all pods for metrics.
func (s *podWorkers) states() (all []metrics.PodState) {
	for _, w := range s.all() {
		w.inbox.mu.Lock()
		state := metrics.PodState{Pod: w.inbox.pod}
		for _, b := range w.view.sandboxes {
			state.Ready = state.Ready || b.Ready
		}
		for _, c := range w.inbox.containers {
			state.Containers = append(state.Containers, c.State)
		}
		w.inbox.mu.Unlock()
		all = append(all, state)
	}
	return all
}
