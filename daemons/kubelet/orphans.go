package kubelet

import (
	"context"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/kubelet/cri"
	"clusterctl/daemons/kubelet/pod"
)

// Orphans are what is left behind of pods that have no worker. The order of the lookups matters: existing things are
// listed first, and the workers afterwards. In the other order, a pod that started in between would look unknown and
// its new resources would be destroyed. If a list cannot be read, nothing is destroyed.

// knownPods returns the UIDs of the pods that have a worker. It returns false until every source of pods has been read
// completely, because the set would be incomplete.
func (k *Kubelet) knownPods() (map[string]bool, bool) {
	select {
	case <-k.synced:
	default:
		return nil, false
	}
	if k.file.StaticPodPath != "" && !k.static.read.Load() {
		return nil, false
	}
	k.pods.mu.Lock()
	defer k.pods.mu.Unlock()
	uids := map[string]bool{}
	for uid := range k.pods.workers {
		uids[string(uid)] = true
	}
	for uid := range k.static.kept {
		uids[uid] = true
	}
	for uid := range k.static.mirrors.heldPods() {
		uids[string(uid)] = true
	}
	return uids, true
}

// adoptOrphans stops and removes running pods that no source wants any more. suspects holds the pods that the last run
// found, and is updated. Only a pod found by two runs in a row is removed. With nil, which the kubelet passes after its
// start once the API and the manifests are read, a pod is removed at once.
func (k *Kubelet) adoptOrphans(ctx context.Context, suspects map[string]bool) {
	boxes, err := k.runtime.ListPodSandbox(ctx, nil)
	if err != nil {
		k.env.Log.Warn("look for orphaned pods", "error", err)
		return
	}
	containers, err := k.runtime.ListContainers(ctx, nil)
	if err != nil {
		k.env.Log.Warn("look for orphaned containers", "error", err)
		return
	}
	uids, ok := k.knownPods()
	if !ok {
		return
	}
	// A missing manifest directory says nothing about static pods. Those that run count as known until it exists.
	missing := k.file.StaticPodPath != "" && k.static.missing.Load()
	k.pods.mu.Lock()
	for uid := range k.static.kept {
		if k.pods.workers[types.UID(uid)] == nil {
			delete(uids, uid) // check the pod again
		}
	}
	k.static.kept = map[string]bool{}
	for _, b := range boxes {
		if uid := b.Labels[cri.LabelPodUID]; missing && uid != "" && b.Annotations[pod.SourceAnnotation] == "file" {
			uids[uid], k.static.kept[uid] = true, true
		}
	}
	k.pods.mu.Unlock()
	found := map[string]bool{}
	look := func(labels, annotations map[string]string) {
		uid := labels[cri.LabelPodUID]
		if uid == "" || uids[uid] {
			return // not a pod of a kubelet, or still wanted
		}
		found[uid] = true
		if suspects == nil || suspects[uid] {
			k.adoptOrphan(labels, annotations)
		}
	}
	for _, b := range boxes {
		look(b.Labels, b.Annotations)
	}
	for _, c := range containers {
		look(c.Labels, nil)
	}
	if suspects != nil {
		clear(suspects)
		for uid := range found {
			suspects[uid] = true
		}
	}
}

func (k *Kubelet) adoptOrphan(labels, annotations map[string]string) {
	uid := types.UID(labels[cri.LabelPodUID])
	k.pods.mu.Lock()
	defer k.pods.mu.Unlock()
	if k.pods.workers[uid] != nil || !k.pods.isOpen {
		return
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:      labels[cri.LabelPodName],
			Namespace: labels[cri.LabelPodNamespace],
			UID:       uid,
		},
	}
	if s, err := strconv.ParseInt(annotations[cri.AnnotationGrace], 10, 64); err == nil {
		p.Spec.TerminationGracePeriodSeconds = &s
	}
	k.env.Log.Info("removing a pod that is no longer wanted", "pod", podName(p), "uid", uid)
	w := newWorker(k, p)
	w.inbox.removed = true
	k.startWorker(w)
}
