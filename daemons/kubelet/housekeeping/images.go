package housekeeping

import (
	"context"
	"log/slog"
	"slices"
	"time"

	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"clusterctl/daemons/config"
	"clusterctl/daemons/kubelet/image"
	"clusterctl/daemons/kubelet/machine"
)

// Images removes images that no container uses.
type Images struct {
	Runtime interface {
		ListImages(ctx context.Context) ([]*criapi.Image, error)
		ListContainers(ctx context.Context, filter *criapi.ContainerFilter) ([]*criapi.Container, error)
		ImageStatus(ctx context.Context, image string) (*criapi.Image, error)
		RemoveImage(ctx context.Context, image string) error
	}
	Machine interface{ Disk() (machine.Disk, error) }
	Pods    Pods
	Records *image.Records // records which credentials pulled which images
	File    *config.KubeletFile
	Log     *slog.Logger
}

// Collect removes images that no container uses while the disk is fuller than configured, longest unused first.
// unused records since when each image is unused. If unused is nil, all unused images can be removed. It reports
// whether any image was removed.
func (g *Images) Collect(ctx context.Context, unused map[string]time.Time) (removed bool) {
	full := func() int64 {
		d, err := g.Machine.Disk()
		if err != nil || d.Capacity == 0 {
			return 0
		}
		return 100 - d.Available*100/d.Capacity
	}
	images, err := g.Runtime.ListImages(ctx)
	if err != nil {
		return false
	}
	g.pruneRecords(ctx, images)
	containers, err := g.Runtime.ListContainers(ctx, nil)
	if err != nil {
		return false
	}
	used := map[string]bool{}
	for _, c := range containers {
		used[c.ImageId], used[c.ImageRef] = true, true
	}
	for ref := range g.volumeImages() {
		image, err := g.Runtime.ImageStatus(ctx, ref)
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
		if now.Sub(since) >= g.File.ImageMinimumGCAge.Duration {
			candidates = append(candidates, candidate{i.Id, since})
		}
	}
	if full() < int64(g.File.ImageGCHighThresholdPercent) && unused != nil {
		return false
	}
	slices.SortFunc(candidates, func(a, b candidate) int { return a.since.Compare(b.since) })
	for _, c := range candidates {
		if full() < int64(g.File.ImageGCLowThresholdPercent) {
			return removed
		}
		if err := g.Runtime.RemoveImage(ctx, c.id); err != nil {
			g.Log.Warn("remove an unused image", "image", c.id, "error", err)
			continue
		}
		removed = true
		g.Log.Info("removed an unused image", "image", c.id)
	}
	return removed
}

// pruneRecords removes the pull records of images that are gone.
func (g *Images) pruneRecords(ctx context.Context, images []*criapi.Image) {
	refs := map[string]bool{}
	for _, i := range images {
		refs[i.Id] = true
	}
	if err := g.Records.Prune(refs, func(ref string) (bool, error) {
		current, err := g.Runtime.ImageStatus(ctx, ref)
		return current.GetId() != "", err
	}); err != nil {
		g.Log.Warn("remove records of images that are gone", "error", err)
	}
}

// volumeImages returns the images that pods of this node mount as volumes. The runtime does not report them as used by
// a container.
func (g *Images) volumeImages() map[string]bool {
	found := map[string]bool{}
	for _, p := range g.Pods.Snapshot() {
		for i := range p.Pod.Spec.Volumes {
			if v := p.Pod.Spec.Volumes[i].Image; v != nil && v.Reference != "" {
				found[v.Reference] = true
			}
		}
	}
	return found
}
