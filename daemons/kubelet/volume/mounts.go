package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Mounts returns the mounts for a container's configuration. Call it after Setup. Sub-paths are pinned by bind mounts,
// so that a container cannot redirect them with a link. expand expands subPathExpr. recursive reports whether the
// runtime supports recursive read-only mounts.
func (m *Manager) Mounts(
	p *corev1.Pod,
	spec *corev1.Container,
	expand func(string) (string, error),
	recursive func() (bool, error),
) ([]*runtime.Mount, error) {
	doing := fmt.Sprintf("MountVolume.SetUp of the volumes of container %q", spec.Name)
	defer m.operations.begin(string(p.UID), doing)()
	var mounts []*runtime.Mount
	for i, vm := range spec.VolumeMounts {
		v := findVolume(p, vm.Name)
		if v == nil {
			return nil, fmt.Errorf("container %s mounts volume %q, which the pod does not have", spec.Name, vm.Name)
		}
		sub, err := subPathOf(vm, expand)
		if err != nil {
			return nil, fmt.Errorf("subPathExpr of volumeMount %q of container %q: %w", vm.Name, spec.Name, err)
		}
		host := m.volumeDir(p, v)
		readOnly := vm.ReadOnly
		switch {
		case v.HostPath != nil:
			host = v.HostPath.Path
		case v.PersistentVolumeClaim != nil, v.Ephemeral != nil:
			readOnly = readOnly || v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly
			// The runtime would create a missing directory, and the container would write into an empty volume.
			if _, err := os.Lstat(host); err != nil {
				return nil, fmt.Errorf("volume %q is not mounted for container %q: %w", vm.Name, spec.Name, err)
			}
		case v.Secret != nil, v.ConfigMap != nil, v.Projected != nil, v.DownwardAPI != nil:
			readOnly = true
		case v.Image != nil:
			// The runtime resolves the path too and also rejects paths that lead out of the image.
			if err := checkSubPath(sub); err != nil {
				return nil, fmt.Errorf("failed to prepare subPath for volumeMount %q of container %q: %w", vm.Name,
					spec.Name, err)
			}
			if sub != "" {
				sub = filepath.Clean(sub)
			}
			mounts = append(
				mounts,
				&runtime.Mount{ContainerPath: absolutePath(vm.MountPath), Readonly: true, ImageSubPath: sub,
					Image: &runtime.ImageSpec{Image: v.Image.Reference}},
			)
			continue
		}
		if sub != "" {
			target := filepath.Join(m.PodDir(string(p.UID)), "volume-subpaths", vm.Name, spec.Name, strconv.Itoa(i))
			if err := m.bindSubPath(host, sub, target); err != nil {
				return nil, fmt.Errorf("failed to prepare subPath for volumeMount %q of container %q: %w", vm.Name,
					spec.Name, err)
			}
			host = target
		}
		mount := &runtime.Mount{ContainerPath: absolutePath(vm.MountPath), HostPath: host, Readonly: readOnly}
		if mount.RecursiveReadOnly, err = isRecursiveReadOnly(vm.RecursiveReadOnly, recursive); err != nil {
			return nil, fmt.Errorf("volumeMount %q of container %q: %w", vm.Name, spec.Name, err)
		}
		if vm.MountPropagation != nil {
			switch *vm.MountPropagation {
			case corev1.MountPropagationHostToContainer:
				mount.Propagation = runtime.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
			case corev1.MountPropagationBidirectional:
				mount.Propagation = runtime.MountPropagation_PROPAGATION_BIDIRECTIONAL
			}
		}
		mounts = append(mounts, mount)
	}
	return mounts, nil
}

// isRecursiveReadOnly reports whether a mount should be recursively read-only. If it is required but not supported, the
// runtime returns the error.
func isRecursiveReadOnly(mode *corev1.RecursiveReadOnlyMode, possible func() (bool, error)) (bool, error) {
	switch {
	case mode == nil || *mode == corev1.RecursiveReadOnlyDisabled:
		return false, nil
	case *mode == corev1.RecursiveReadOnlyIfPossible:
		return possible()
	}
	return true, nil
}

func subPathOf(vm corev1.VolumeMount, expand func(string) (string, error)) (string, error) {
	if vm.SubPathExpr == "" {
		return vm.SubPath, nil
	}
	return expand(vm.SubPathExpr)
}

func absolutePath(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join("/", path)
}

func findVolume(p *corev1.Pod, name string) *corev1.Volume {
	for i := range p.Spec.Volumes {
		if p.Spec.Volumes[i].Name == name {
			return &p.Spec.Volumes[i]
		}
	}
	return nil
}

// Teardown unmounts a pod's volumes and removes its directory. If an unmount fails, it keeps the directory, so that
// nothing behind the mount is deleted.
func (m *Manager) Teardown(uid string) error {
	defer m.operations.begin(uid, "UnmountVolume.TearDown of the volumes")()
	dir := m.PodDir(uid)
	if err := m.Mounter.UnmountAll(dir); err != nil {
		return fmt.Errorf("unmount the volumes of pod %s: %w", uid, err)
	}
	if err := removeTree(dir); err != nil {
		return fmt.Errorf("remove the directory of pod %s: %w", uid, err)
	}
	return nil
}

// Pods returns the UIDs of all pods that have a directory.
func (m *Manager) Pods() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(m.Root, "pods"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var uids []string
	for _, e := range entries {
		uids = append(uids, e.Name())
	}
	return uids, err
}

// WriteHosts writes a pod's /etc/hosts and returns its path.
func (m *Manager) WriteHosts(p *corev1.Pod, hostname, domain string, ips []string) (string, error) {
	path := filepath.Join(m.PodDir(string(p.UID)), "etc-hosts")
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return "", err
	}
	var b strings.Builder
	if p.Spec.HostNetwork {
		host, err := os.ReadFile("/etc/hosts")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		b.WriteString("# Kubernetes-managed hosts file (host network).\n")
		b.Write(host)
	} else {
		b.WriteString("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost " +
			"ip6-loopback\n" +
			"fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n")
		for _, ip := range ips {
			if domain != "" {
				fmt.Fprintf(&b, "%s\t%s.%s\t%s\n", ip, hostname, domain, hostname)
			} else {
				fmt.Fprintf(&b, "%s\t%s\n", ip, hostname)
			}
		}
	}
	if len(p.Spec.HostAliases) > 0 {
		b.WriteString("\n# Entries added by HostAliases.\n")
		for _, a := range p.Spec.HostAliases {
			fmt.Fprintf(&b, "%s\t%s\n", a.IP, strings.Join(a.Hostnames, "\t"))
		}
	}
	// The file itself is mounted into containers, so it is rewritten in place. On a full disk that could leave it
	// empty, so an up-to-date file is not touched.
	if before, err := os.ReadFile(path); err == nil && string(before) == b.String() {
		return path, nil
	}
	return path, os.WriteFile(path, []byte(b.String()), 0o644)
}

// TerminationLog creates the termination message file of one attempt of a container, and returns its path.
func (m *Manager) TerminationLog(uid, container string, attempt uint32) (string, error) {
	path := filepath.Join(m.PodDir(uid), "containers", container, strconv.FormatUint(uint64(attempt), 10))
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return "", err
	}
	if err := os.WriteFile(path, nil, 0o666); err != nil {
		return "", err
	}
	return path, os.Chmod(path, 0o666)
}
