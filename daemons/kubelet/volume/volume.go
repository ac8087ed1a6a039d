// Package volume prepares the volumes of pods: directories, files generated from API objects and tokens, and mounts.
// All state is in the directories themselves, so that it survives a restart.
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

	"golang.org/x/sys/unix"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	podresource "k8s.io/component-helpers/resource"

	"clusterctl/daemons/kubelet/pod"
)

// Source provides the contents of volumes.
type Source interface {
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	// Token returns a service account token for the pod, and when to call it again.
	Token(
		ctx context.Context,
		p *corev1.Pod,
		audience string,
		lifetime time.Duration,
	) (token string, renew time.Time, err error)
	// TrustBundles returns the bundle with the given name. Without a name, it returns all bundles of the signer.
	TrustBundles(ctx context.Context, name, signer string) ([]certificatesv1.ClusterTrustBundle, error)
	// PodCertificate returns the key and certificate of the index-th source of a projected volume, and the time to call
	// it again.
	PodCertificate(ctx context.Context, p *corev1.Pod, volume string, index int,
		source *corev1.PodCertificateProjection) (pair KeyPair, renew time.Time, err error)
	// Claim and Volume read the current claim and persistent volume from the API.
	Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error)
	Volume(ctx context.Context, name string) (*corev1.PersistentVolume, error)
}

// KeyPair is a private key and its certificate chain, both in PEM.
type KeyPair struct{ Key, Chain []byte }

// Mounter is the interface to the kernel's mounts.
type Mounter interface {
	Tmpfs(path, options string) error
	Bind(from, to string, options []string) error // see bindFlags for the supported options
	MountDevice(ctx context.Context, f FileSystem, at string) error
	MakeDir(path string) error   // creates a missing directory of the machine
	Unmount(path string) error   // all mounts at path and below
	UnmountAll(dir string) error // all mounts below dir
	IsMounted(path string) (bool, error)
}

// Manager manages the volumes of the node's pods below its root directory.
type Manager struct {
	Root    string // /var/lib/kubelet
	Source  Source
	Mounter Mounter
	Node    func() pod.Node
	// Labels returns the node's labels, for volumes that only some nodes can reach.
	Labels func(context.Context) (map[string]string, error)
	// Provisioned is the directory of the volumes provisioned for claims. It contains only their directories.
	Provisioned string
	// MachineID is the identity of this machine, or "" if it has none.
	MachineID string
	// Projects limits the size of those directories. Nil means no limits.
	Projects *Projects
	// OnUnbounded is called when a volume is used without an enforced size, with the reason. It may be nil.
	OnUnbounded func(name string, cause error)

	operations runningOperations // operations of all pods
	locks      nameLocks         // by name of a provisioned volume: only one mount, growth or removal at a time
}

// PodDir returns the directory of a pod.
func (m *Manager) PodDir(uid string) string { return filepath.Join(m.Root, "pods", uid) }

// Setup creates a pod's volumes, or refreshes those with contents from API objects. It returns when to call it again at
// the latest; zero means no fixed time. It can be repeated at any time.
func (m *Manager) Setup(ctx context.Context, p *corev1.Pod) (again time.Time, err error) {
	if err := os.MkdirAll(m.PodDir(string(p.UID)), 0o750); err != nil {
		return time.Time{}, fmt.Errorf("make the directory of pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	var mu sync.Mutex
	var failures []error
	var all sync.WaitGroup
	// Run in parallel, because each volume waits for the API.
	for i := range p.Spec.Volumes {
		all.Go(func() {
			v := &p.Spec.Volumes[i]
			done := m.operations.begin(string(p.UID), fmt.Sprintf("MountVolume.SetUp of volume %q", v.Name))
			at, err := m.setupVolume(ctx, p, v)
			done()
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

func (m *Manager) setupVolume(ctx context.Context, p *corev1.Pod, v *corev1.Volume) (time.Time, error) {
	dir := m.volumeDir(p, v)
	switch {
	case v.EmptyDir != nil:
		return time.Time{}, m.mountEmptyDir(p, v.EmptyDir, dir)
	case v.HostPath != nil:
		return time.Time{}, checkHostPath(v.HostPath)
	case v.PersistentVolumeClaim != nil, v.Ephemeral != nil:
		return time.Time{}, m.mountClaim(ctx, p, v, dir)
	case v.Image != nil:
		return time.Time{}, nil // the runtime mounts it
	}
	files, again, err := contents{m.Source, m.Node}.files(ctx, p, v)
	if err != nil {
		return time.Time{}, err
	}
	if v.Secret != nil || v.Projected != nil {
		// Keep secrets in memory, off the disk.
		if mounted, err := m.Mounter.IsMounted(dir); err != nil {
			return time.Time{}, err
		} else if !mounted {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return time.Time{}, err
			}
			if err := m.Mounter.Tmpfs(dir, "mode=0755"); err != nil {
				return time.Time{}, err
			}
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return time.Time{}, err
	}
	return again, writeFiles(dir, files, fsGroup(p))
}

// pluginDir returns the directory name that upstream uses for the volume's plugin.
func pluginDir(v *corev1.Volume) string {
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

func (m *Manager) volumeDir(p *corev1.Pod, v *corev1.Volume) string {
	return filepath.Join(m.PodDir(string(p.UID)), "volumes", pluginDir(v), v.Name)
}

func (m *Manager) mountEmptyDir(p *corev1.Pod, e *corev1.EmptyDirVolumeSource, dir string) error {
	if e.Medium == corev1.StorageMediumMemory {
		if mounted, err := m.Mounter.IsMounted(dir); err != nil || mounted {
			return err
		}
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return err
		}
		options := fmt.Sprintf("mode=%#o", emptyDirMode(e))
		if group := fsGroup(p); group != nil {
			options = fmt.Sprintf("mode=%#o,gid=%d", emptyDirMode(e)|0o2770, *group)
		}
		if size := m.memorySize(p, e); size > 0 {
			options += fmt.Sprintf(",size=%d", size)
		}
		return m.Mounter.Tmpfs(dir, options)
	}
	// An existing directory is complete and belongs to the containers. An incomplete one has another name.
	if _, err := os.Lstat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
		return err
	}
	half, err := os.MkdirTemp(filepath.Dir(dir), "..new-")
	if err != nil {
		return err
	}
	// Regardless of the umask: any user of the pod's containers may write here.
	err = unix.Chmod(half, emptyDirMode(e))
	if err == nil {
		err = setGroup(half, fsGroup(p), false)
	}
	if err == nil {
		err = os.Rename(half, dir)
	}
	if err != nil {
		_ = os.Remove(half)
	}
	return err
}

// emptyDirMode returns the mode of an mountEmptyDir volume, as chmod(2) defines it: the specified mode, or access for
// everyone. A volume in memory has the sticky bit, which is the default of tmpfs.
func emptyDirMode(e *corev1.EmptyDirVolumeSource) uint32 {
	switch {
	case e.Mode != nil:
		return uint32(*e.Mode) & 0o1777
	case e.Medium == corev1.StorageMediumMemory:
		return 0o1777
	}
	return 0o777
}

// ExceededLimit returns why a pod must be evicted for the usage of its mountEmptyDir volumes, or "" if all are within
// their limits.
func (m *Manager) ExceededLimit(p *corev1.Pod) string {
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if v.EmptyDir == nil || v.EmptyDir.Medium != corev1.StorageMediumDefault || v.EmptyDir.SizeLimit == nil ||
			v.EmptyDir.SizeLimit.Sign() <= 0 {
			continue
		}
		// On an error, the usage is a lower bound.
		if u, _ := measureUsage(m.volumeDir(p, v)); u.Bytes > v.EmptyDir.SizeLimit.Value() {
			return fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name,
				v.EmptyDir.SizeLimit.String())
		}
	}
	return ""
}

// DiskUsage returns a pod's disk usage in bytes, without the containers' file systems and logs: its volumes on disk,
// its hosts file, and its termination message files.
func (m *Manager) DiskUsage(p *corev1.Pod) int64 {
	// On an error, the usage is a lower bound.
	hosts, _ := measureUsage(filepath.Join(m.PodDir(string(p.UID)), "etc-hosts"))
	words, _ := measureUsage(filepath.Join(m.PodDir(string(p.UID)), "containers"))
	sum := hosts.Bytes + words.Bytes
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if v.ConfigMap != nil || v.EmptyDir != nil && v.EmptyDir.Medium == corev1.StorageMediumDefault {
			u, _ := measureUsage(m.volumeDir(p, v))
			sum += u.Bytes
		}
	}
	return sum
}

// memorySize returns the size of a volume in memory: its size limit, but at most the memory limit of the pod or,
// without one, the node's allocatable memory.
func (m *Manager) memorySize(p *corev1.Pod, e *corev1.EmptyDirVolumeSource) int64 {
	size := int64(0)
	node := m.Node().Allocatable
	if maximum := node.Memory(); maximum != nil {
		size = maximum.Value()
	}
	limits := podresource.PodLimits(p, podresource.PodResourcesOptions{})
	limited := limits.Memory().Value() > 0
	for i := range p.Spec.Containers {
		limited = limited && !p.Spec.Containers[i].Resources.Limits.Memory().IsZero()
	}
	if limited && (size == 0 || limits.Memory().Value() < size) {
		size = limits.Memory().Value()
	}
	if e.SizeLimit != nil && e.SizeLimit.Sign() > 0 && (size == 0 || e.SizeLimit.Value() < size) {
		size = e.SizeLimit.Value()
	}
	return size
}

func fsGroup(p *corev1.Pod) *int64 {
	if p.Spec.SecurityContext == nil {
		return nil
	}
	return p.Spec.SecurityContext.FSGroup
}

// checkHostPath checks or creates the path of a checkHostPath volume.
func checkHostPath(h *corev1.HostPathVolumeSource) error {
	kind := corev1.HostPathUnset
	if h.Type != nil {
		kind = *h.Type
	}
	info, err := os.Stat(h.Path)
	switch kind {
	case corev1.HostPathUnset:
		return nil // the runtime creates a missing directory
	case corev1.HostPathDirectoryOrCreate:
		if errors.Is(err, fs.ErrNotExist) {
			return os.MkdirAll(h.Path, 0o755)
		}
	case corev1.HostPathFileOrCreate:
		if errors.Is(err, fs.ErrNotExist) {
			// O_EXCL: a dangling link must not decide where the file is created.
			f, err := os.OpenFile(h.Path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o644)
			if err != nil {
				return err
			}
			return f.Close()
		}
	}
	if err != nil {
		return fmt.Errorf("hostPath type check failed: %s is not a %s: %w", h.Path, hostPathKinds[kind], err)
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
		return fmt.Errorf("hostPath type check failed: %s is not a %s", h.Path, hostPathKinds[kind])
	}
	return nil
}

// hostPathKinds are descriptions of the checkHostPath types, in upstream's wording.
var hostPathKinds = map[corev1.HostPathType]string{
	corev1.HostPathDirectory:         "directory",
	corev1.HostPathDirectoryOrCreate: "directory",
	corev1.HostPathFile:              "file",
	corev1.HostPathFileOrCreate:      "file",
	corev1.HostPathSocket:            "socket file",
	corev1.HostPathCharDev:           "character device",
	corev1.HostPathBlockDev:          "block device",
}
