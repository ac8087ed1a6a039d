package housekeeping

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/kubelet/logs"
)

// Sweeper removes what is left behind of pods that are gone. The order of its lookups matters: existing things are
// listed first, and the pods afterwards. In the other order, a pod that started in between would look unknown and its
// new resources would be destroyed. If a list cannot be read, nothing is destroyed.
type Sweeper struct {
	Pods       Pods
	VolumeDirs interface {
		Pods() ([]string, error)
		Teardown(uid string) error
	}
	Groups interface {
		Pods() (map[string]string, error)
		Remove(path string) error
	}
	Claims interface {
		Pods() []types.UID
		Unprepare(ctx context.Context, uid types.UID) error
	}
	LogDir logs.Dir
	Log    *slog.Logger

	teardowns sync.Map // UIDs of pods whose volumes are being removed
}

// Volumes removes the volume directories of pods that no longer exist. Each pod has its own goroutine, so that an
// unmount that hangs does not block the others.
func (s *Sweeper) Volumes(context.Context) {
	uids, err := s.VolumeDirs.Pods()
	if err != nil {
		s.Log.Warn("look for orphaned volumes", "error", err)
		return
	}
	pods, ok := s.Pods.Known()
	if !ok {
		return
	}
	for _, uid := range uids {
		if pods[uid] {
			continue
		}
		if _, hangs := s.teardowns.LoadOrStore(uid, true); hangs {
			continue
		}
		go func() {
			defer s.teardowns.Delete(uid)
			if err := s.VolumeDirs.Teardown(uid); err != nil {
				s.Log.Warn("remove orphaned volumes", "uid", uid, "error", err)
			}
		}()
	}
}

// Cgroups removes the cgroups of pods that no longer exist and kills the processes in them.
func (s *Sweeper) Cgroups(context.Context) {
	groups, err := s.Groups.Pods()
	if err != nil {
		s.Log.Warn("look for orphaned cgroups", "error", err)
		return
	}
	pods, ok := s.Pods.Known()
	if !ok {
		return
	}
	for uid, path := range groups {
		if !pods[uid] {
			if err := s.Groups.Remove(path); err != nil {
				s.Log.Warn("remove an orphaned cgroup", "cgroup", path, "error", err)
			}
		}
	}
}

// Logs removes the logs of pods that no longer exist, and links that lead to no log.
func (s *Sweeper) Logs(context.Context) {
	entries, err := os.ReadDir(string(s.LogDir))
	if err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			s.Log.Warn("look for orphaned logs", "error", err)
		}
		return
	}
	pods, ok := s.Pods.Known()
	if !ok {
		return
	}
	for _, e := range entries {
		parts := strings.Split(e.Name(), "_")
		if uid := parts[len(parts)-1]; len(parts) == 3 && !pods[uid] {
			if err := s.LogDir.RemoveAll(filepath.Join(string(s.LogDir), e.Name())); err != nil {
				s.Log.Warn("remove orphaned logs", "directory", e.Name(), "error", err)
			}
		}
	}
	containers := s.LogDir.Links()
	links, _ := os.ReadDir(containers) // if the folder cannot be read, dangling links stay until the next run
	for _, link := range links {
		path := filepath.Join(containers, link.Name())
		if _, err := os.Stat(path); strings.HasSuffix(path, ".log") && os.IsNotExist(err) {
			_ = os.Remove(path)
		}
	}
}

// Devices unprepares the device claims of pods that no longer exist.
func (s *Sweeper) Devices(ctx context.Context) {
	pods := s.Claims.Pods()
	if len(pods) == 0 {
		return
	}
	known, ok := s.Pods.Known()
	if !ok {
		return
	}
	for _, uid := range pods {
		if known[string(uid)] {
			continue
		}
		if err := s.Claims.Unprepare(ctx, uid); err != nil {
			s.Log.Warn("unprepare the devices of a pod that is gone", "uid", uid, "error", err)
		}
	}
}
