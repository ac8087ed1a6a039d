package kubelet

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/kubelet/cri"
	"clusterctl/daemons/kubelet/pod"
)

// What is left behind of pods is found by what exists that no worker has. The order matters: what exists is listed
// first, and the pods are looked at afterwards. The other way round, a pod that began in between would be taken for one
// that nobody knows, and what it just made destroyed. A list that could not be had destroys nothing.

// known returns the uids of the pods that have a worker. It reports false while a source of pods has not been read
// whole: of what is not known then, nothing follows.
func (k *Kubelet) known() (map[string]bool, bool) {
	select {
	case <-k.synced:
	default:
		return nil, false
	}
	if k.file.StaticPodPath != "" && !k.manifestsRead.Load() {
		return nil, false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	known := map[string]bool{}
	for uid := range k.workers {
		known[string(uid)] = true
	}
	for uid := range k.spared {
		known[uid] = true
	}
	for uid := range k.mirrors.holding() {
		known[string(uid)] = true
	}
	return known, true
}

// sweepVolumes removes the directories of pods that are no more, each by itself: one whose unmount hangs keeps none of
// the others.
func (k *Kubelet) sweepVolumes(context.Context) {
	uids, err := k.volumes.Pods()
	if err != nil {
		k.env.Log.Warn("look for orphaned volumes", "error", err)
		return
	}
	known, ok := k.known()
	if !ok {
		return
	}
	for _, uid := range uids {
		if known[uid] {
			continue
		}
		if _, hangs := k.tearing.LoadOrStore(uid, true); hangs {
			continue
		}
		go func() {
			defer k.tearing.Delete(uid)
			if err := k.volumes.Teardown(uid); err != nil {
				k.env.Log.Warn("remove orphaned volumes", "uid", uid, "error", err)
			}
		}()
	}
}

// sweepCgroups removes the groups of pods that are no more, with what runs in them still.
func (k *Kubelet) sweepCgroups(context.Context) {
	groups, err := k.cgroups.Pods()
	if err != nil {
		k.env.Log.Warn("look for orphaned cgroups", "error", err)
		return
	}
	known, ok := k.known()
	if !ok {
		return
	}
	for uid, path := range groups {
		if !known[uid] {
			if err := k.cgroups.Remove(path); err != nil {
				k.env.Log.Warn("remove an orphaned cgroup", "cgroup", path, "error", err)
			}
		}
	}
}

// sweepLogs removes the logs of pods that are no more, and names that lead to no log.
func (k *Kubelet) sweepLogs(context.Context) {
	entries, err := os.ReadDir(k.logRoot)
	if err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			k.env.Log.Warn("look for orphaned logs", "error", err)
		}
		return
	}
	known, ok := k.known()
	if !ok {
		return
	}
	for _, e := range entries {
		parts := strings.Split(e.Name(), "_")
		if uid := parts[len(parts)-1]; len(parts) == 3 && !known[uid] {
			if err := k.removeLogs(filepath.Join(k.logRoot, e.Name())); err != nil {
				k.env.Log.Warn("remove orphaned logs", "directory", e.Name(), "error", err)
			}
		}
	}
	containers := filepath.Join(filepath.Dir(k.logRoot), "containers")
	links, _ := os.ReadDir(containers) // links whose logs are gone stay until the folder can be read
	for _, link := range links {
		path := filepath.Join(containers, link.Name())
		if _, err := os.Stat(path); strings.HasSuffix(path, ".log") && os.IsNotExist(err) {
			_ = os.Remove(path)
		}
	}
}

// adoptOrphans has what runs here of pods that nobody wants any more stopped and removed. suspects are the pods that it
// found last time, and finds this time: only who is on both lists is nobody's. A kubelet that just began looks at all
// pods at once (nil), when the API and the manifests have been read.
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
	known, ok := k.known()
	if !ok {
		return
	}
	// A directory that is not there says nothing of static pods; those that run are as good as known, until it is.
	missing := k.file.StaticPodPath != "" && k.manifestsMissing.Load()
	k.mu.Lock()
	for uid := range k.spared {
		if k.workers[types.UID(uid)] == nil {
			delete(known, uid) // it is looked at anew
		}
	}
	k.spared = map[string]bool{}
	for _, b := range boxes {
		if uid := b.Labels[cri.LabelPodUID]; missing && uid != "" && b.Annotations[pod.SourceAnnotation] == "file" {
			known[uid], k.spared[uid] = true, true
		}
	}
	k.mu.Unlock()
	found := map[string]bool{}
	look := func(labels, annotations map[string]string) {
		uid := labels[cri.LabelPodUID]
		if uid == "" || known[uid] {
			return // not a kubelet's, or wanted
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
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.workers[uid] != nil || k.ctx.Err() != nil {
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
	k.env.Log.Info("removing a pod that nobody wants any more", "pod", key(p), "uid", uid)
	w := newWorker(k, p)
	w.removed = true
	k.launch(w)
}
