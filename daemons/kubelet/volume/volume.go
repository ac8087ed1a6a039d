// Package volume puts a pod's volumes where its containers can be given them:
// directories, files made of API objects and of tokens, mounts. It remembers nothing
// that the directories themselves do not say, so that it carries on after a restart.
package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"clusterctl/daemons/kubelet/pod"
)

// Source is where the contents of volumes come from.
type Source interface {
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	// Token returns a service-account token for the pod, and when to ask again.
	Token(ctx context.Context, p *corev1.Pod, audience string, lifetime time.Duration) (token string, renew time.Time, err error)
	// TrustBundles returns the bundle of a name or, without one, those of a signer.
	TrustBundles(ctx context.Context, name, signer string) ([]certificatesv1.ClusterTrustBundle, error)
	// Claim returns the volume that a claim of the pod's namespace is bound to.
	Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolume, error)
}

// Mounter is what of the kernel volumes need.
type Mounter interface {
	Tmpfs(path string, size int64) error // size 0 is the kernel's default
	Bind(from, to string, readOnly bool) error
	Unmount(path string) error // nil when nothing is mounted there
	Mounted(path string) (bool, error)
}

// Manager keeps the volumes of a node's pods below its root directory.
type Manager struct {
	Root    string // /var/lib/kubelet
	Source  Source
	Mounter Mounter
	Node    func() pod.Node
}

// PodDir returns the directory of all that belongs to a pod.
func (m *Manager) PodDir(uid string) string { return filepath.Join(m.Root, "pods", uid) }

// Setup makes a pod's volumes, or brings those that are made of API objects up to
// date. It returns when it should be called again at the latest (zero: no such
// time). It may be repeated at any time.
func (m *Manager) Setup(ctx context.Context, p *corev1.Pod) (again time.Time, err error) {
	if err := os.MkdirAll(m.PodDir(string(p.UID)), 0o750); err != nil {
		return time.Time{}, fmt.Errorf("make the directory of pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	var mu sync.Mutex
	var failures []error
	var all sync.WaitGroup
	// Volumes wait for the API, not for each other.
	for i := range p.Spec.Volumes {
		all.Go(func() {
			v := &p.Spec.Volumes[i]
			at, err := m.setup(ctx, p, v)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failures = append(failures, fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", v.Name, err))
			}
			if !at.IsZero() && (again.IsZero() || at.Before(again)) {
				again = at
			}
		})
	}
	all.Wait()
	return again, errors.Join(failures...)
}

func (m *Manager) setup(ctx context.Context, p *corev1.Pod, v *corev1.Volume) (time.Time, error) {
	dir := m.dir(p, v)
	switch {
	case v.EmptyDir != nil:
		return time.Time{}, m.emptyDir(p, v.EmptyDir, dir)
	case v.HostPath != nil:
		return time.Time{}, hostPath(v.HostPath)
	case v.PersistentVolumeClaim != nil:
		pv, err := m.Source.Claim(ctx, p.Namespace, v.PersistentVolumeClaim.ClaimName)
		if err != nil {
			return time.Time{}, err
		}
		return time.Time{}, m.claim(p, pv, dir)
	case v.Ephemeral != nil:
		pv, err := m.Source.Claim(ctx, p.Namespace, p.Name+"-"+v.Name)
		if err != nil {
			return time.Time{}, err
		}
		return time.Time{}, m.claim(p, pv, dir)
	case v.Image != nil:
		return time.Time{}, nil // the runtime mounts it
	}
	files, again, err := m.files(ctx, p, v)
	if err != nil {
		return time.Time{}, err
	}
	if v.Secret != nil || v.Projected != nil {
		// What is secret does not touch a disk.
		if mounted, err := m.Mounter.Mounted(dir); err != nil {
			return time.Time{}, err
		} else if !mounted {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return time.Time{}, err
			}
			if err := m.Mounter.Tmpfs(dir, 0); err != nil {
				return time.Time{}, err
			}
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return time.Time{}, err
	}
	return again, write(dir, files, fsGroup(p))
}

// kinds are the directory names that upstream gives volumes' plugins.
func kind(v *corev1.Volume) string {
	switch {
	case v.EmptyDir != nil:
		return "kubernetes.io~empty-dir"
	case v.ConfigMap != nil:
		return "kubernetes.io~configmap"
	case v.Secret != nil:
		return "kubernetes.io~secret"
	case v.DownwardAPI != nil:
		return "kubernetes.io~downward-api"
	case v.Projected != nil:
		return "kubernetes.io~projected"
	}
	return "kubernetes.io~local-volume"
}

func (m *Manager) dir(p *corev1.Pod, v *corev1.Volume) string {
	return filepath.Join(m.PodDir(string(p.UID)), "volumes", kind(v), v.Name)
}

func (m *Manager) emptyDir(p *corev1.Pod, e *corev1.EmptyDirVolumeSource, dir string) error {
	if _, err := os.Stat(dir); err == nil && e.Medium != corev1.StorageMediumMemory {
		return nil
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	if e.Medium == corev1.StorageMediumMemory {
		if mounted, err := m.Mounter.Mounted(dir); err != nil || mounted {
			return err
		}
		size := int64(0)
		if e.SizeLimit != nil && e.SizeLimit.Cmp(resource.Quantity{}) > 0 {
			size = e.SizeLimit.Value()
		}
		if err := m.Mounter.Tmpfs(dir, size); err != nil {
			return err
		}
	}
	// Past the umask: any user of the pod's containers may write here.
	if err := os.Chmod(dir, 0o777); err != nil {
		return err
	}
	return own(dir, fsGroup(p))
}

func (m *Manager) claim(p *corev1.Pod, pv *corev1.PersistentVolume, dir string) error {
	var path string
	switch {
	case pv.Spec.HostPath != nil:
		if err := hostPath(pv.Spec.HostPath); err != nil {
			return err
		}
		path = pv.Spec.HostPath.Path
	case pv.Spec.Local != nil:
		path = pv.Spec.Local.Path
	default:
		return fmt.Errorf("persistent volume %s: only hostPath and local volumes are supported", pv.Name)
	}
	if mounted, err := m.Mounter.Mounted(dir); err != nil || mounted {
		return err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	if err := m.Mounter.Bind(path, dir, false); err != nil {
		return err
	}
	return own(dir, fsGroup(p))
}

func fsGroup(p *corev1.Pod) *int64 {
	if p.Spec.SecurityContext == nil {
		return nil
	}
	return p.Spec.SecurityContext.FSGroup
}

// own gives a directory and what is in it to a pod's group.
func own(dir string, group *int64) error {
	if group == nil {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := os.Lchown(path, -1, int(*group)); err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil || info.Mode()&fs.ModeSymlink != 0 {
			return err
		}
		mode := info.Mode().Perm() | 0o660
		if d.IsDir() {
			return os.Chmod(path, mode|0o110|fs.ModeSetgid)
		}
		return os.Chmod(path, mode)
	})
}

// hostPath checks or makes what a hostPath volume names.
func hostPath(h *corev1.HostPathVolumeSource) error {
	kind := corev1.HostPathUnset
	if h.Type != nil {
		kind = *h.Type
	}
	info, err := os.Stat(h.Path)
	switch kind {
	case corev1.HostPathUnset:
		return nil // the runtime makes a directory when there is nothing
	case corev1.HostPathDirectoryOrCreate:
		if errors.Is(err, fs.ErrNotExist) {
			return os.MkdirAll(h.Path, 0o755)
		}
	case corev1.HostPathFileOrCreate:
		if errors.Is(err, fs.ErrNotExist) {
			f, err := os.OpenFile(h.Path, os.O_CREATE|os.O_RDWR, 0o644)
			if err != nil {
				return err
			}
			return f.Close()
		}
	}
	if err != nil {
		return fmt.Errorf("hostPath type check failed: %s is not a %s: %w", h.Path, kind, err)
	}
	mode := info.Mode()
	ok := true
	switch kind {
	case corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate:
		ok = mode.IsDir()
	case corev1.HostPathFile, corev1.HostPathFileOrCreate:
		ok = mode.IsRegular()
	case corev1.HostPathSocket:
		ok = mode&fs.ModeSocket != 0
	case corev1.HostPathCharDev:
		ok = mode&fs.ModeCharDevice != 0
	case corev1.HostPathBlockDev:
		ok = mode&fs.ModeDevice != 0 && mode&fs.ModeCharDevice == 0
	}
	if !ok {
		return fmt.Errorf("hostPath type check failed: %s is not a %s", h.Path, kind)
	}
	return nil
}
