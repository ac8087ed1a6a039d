package kubelet

import (
	"context"
	"slices"
	"time"

	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// collectImages removes images that no container uses while the disk is fuller than configured, longest unused first.
// unused records since when each image is unused. If unused is nil, all unused images can be removed. It reports
// whether any image was removed.
func (k *Kubelet) collectImages(ctx context.Context, unused map[string]time.Time) (removed bool) {
	full := func() int64 {
		d, err := k.machine.Disk()
		if err != nil || d.Capacity == 0 {
			return 0
		}
		return 100 - d.Available*100/d.Capacity
	}
	images, err := k.runtime.ListImages(ctx)
	if err != nil {
		return false
	}
	k.pruneRecords(ctx, images)
	containers, err := k.runtime.ListContainers(ctx, nil)
	if err != nil {
		return false
	}
	used := map[string]bool{}
	for _, c := range containers {
		used[c.ImageId], used[c.ImageRef] = true, true
	}
	for ref := range k.volumeImages() {
		image, err := k.runtime.ImageStatus(ctx, ref)
		if err != nil {
			return false
		}
		if image != nil {
			used[image.Id] = true
		}
	}
	type candidate struct {
		id    string
		since time.Time
	}
	var candidates []candidate
	now := time.Now()
	for _, i := range images {
		if used[i.Id] || i.Pinned || slices.ContainsFunc(i.RepoDigests, func(d string) bool { return used[d] }) {
			delete(unused, i.Id)
			continue
		}
		since := time.Time{}
		if unused != nil {
			if _, ok := unused[i.Id]; !ok {
				unused[i.Id] = now
			}
			since = unused[i.Id]
		}
		if now.Sub(since) >= k.file.ImageMinimumGCAge.Duration {
			candidates = append(candidates, candidate{i.Id, since})
		}
	}
	if full() < int64(k.file.ImageGCHighThresholdPercent) && unused != nil {
		return false
	}
	slices.SortFunc(candidates, func(a, b candidate) int { return a.since.Compare(b.since) })
	for _, c := range candidates {
		if full() < int64(k.file.ImageGCLowThresholdPercent) {
			return removed
		}
		if err := k.runtime.RemoveImage(ctx, c.id); err != nil {
			k.env.Log.Warn("remove an unused image", "image", c.id, "error", err)
			continue
		}
		removed = true
		k.env.Log.Info("removed an unused image", "image", c.id)
	}
	return removed
}

// imageID returns a function that looks up the id of an image. The id is empty if the node does not have the image.
func (k *Kubelet) imageID(ctx context.Context) func(name string) (string, error) {
	return func(name string) (string, error) {
		have, err := k.runtime.ImageStatus(ctx, name)
		return have.GetId(), err
	}
}

// pruneRecords removes the pull records of images that are gone.
func (k *Kubelet) pruneRecords(ctx context.Context, images []*criapi.Image) {
	refs := map[string]bool{}
	for _, i := range images {
		refs[i.Id] = true
	}
	find := k.imageID(ctx)
	if err := k.pullRecords.Prune(refs, func(ref string) (bool, error) {
		id, err := find(ref)
		return id != "", err
	}); err != nil {
		k.env.Log.Warn("remove records of images that are gone", "error", err)
	}
}

// volumeImages returns the images that pods of this node mount as volumes. The runtime does not report them as used by
// a container.
func (k *Kubelet) volumeImages() map[string]bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	found := map[string]bool{}
	for _, w := range k.workers {
		w.mu.Lock()
		for i := range w.pod.Spec.Volumes {
			if v := w.pod.Spec.Volumes[i].Image; v != nil && v.Reference != "" {
				found[v.Reference] = true
			}
		}
		w.mu.Unlock()
	}
	return found
}
