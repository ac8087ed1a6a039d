package volume

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// deviceFile returns the path of a pod's block volume. The device is bind-mounted to this file. The mount shows which
// pod uses the device, and the pod keeps this device even if the path changes.
func (m *Manager) deviceFile(p *corev1.Pod, v *corev1.Volume) string {
	return filepath.Join(m.PodDir(string(p.UID)), "volumeDevices", pluginDir(v), v.Name)
}

// mountDevice makes the block device of a persistent volume available to a pod. The caller holds the volume's turn. The
// owner of the device is not changed.
func (m *Manager) mountDevice(p *corev1.Pod, pv *corev1.PersistentVolume, at string) error {
	if pv.Spec.Local == nil {
		return fmt.Errorf("persistent volume %s has volumeMode Block, and only local volumes are supported as devices",
			pv.Name)
	}
	if len(pv.Spec.MountOptions) > 0 {
		return fmt.Errorf("persistent volume %s: a device is not mounted, and has no mount options", pv.Name)
	}
	path, err := filepath.EvalSymlinks(pv.Spec.Local.Path)
	if err != nil {
		return fmt.Errorf("persistent volume %s: %w", pv.Name, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("persistent volume %s: %w", pv.Name, err)
	}
	if mode := info.Mode(); mode&fs.ModeDevice == 0 || mode&fs.ModeCharDevice != 0 {
		return fmt.Errorf("persistent volume %s: %s is not a block device", pv.Name, path)
	}
	if err := m.checkExclusive(p, pv, path); err != nil {
		return err
	}
	return m.bindMount(path, at, nil)
}

// Devices returns the devices for a container's configuration. Call it after Setup.
func (m *Manager) Devices(p *corev1.Pod, spec *corev1.Container) ([]*runtime.Device, error) {
	var devices []*runtime.Device
	for _, d := range spec.VolumeDevices {
		v := findVolume(p, d.Name)
		if v == nil {
			return nil, fmt.Errorf("container %s has volume %q as a device, which the pod does not have", spec.Name,
				d.Name)
		}
		at := m.deviceFile(p, v)
		if _, err := os.Lstat(at); err != nil {
			return nil, fmt.Errorf("volume %q cannot be a device of container %s: %w", d.Name, spec.Name, err)
		}
		permissions := "mrw"
		if c := v.PersistentVolumeClaim; c != nil && c.ReadOnly {
			permissions = "r"
		}
		devices = append(devices,
			&runtime.Device{HostPath: at, ContainerPath: absolutePath(d.DevicePath), Permissions: permissions})
	}
	return devices, nil
}

// checkVolumeMode returns an error if a container mounts a block volume, or uses a file system volume as a device.
func checkVolumeMode(p *corev1.Pod, v *corev1.Volume, pv *corev1.PersistentVolume) error {
	block := isBlock(pv)
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			switch c := &list[i]; {
			case block && slices.ContainsFunc(c.VolumeMounts,
				func(m corev1.VolumeMount) bool { return m.Name == v.Name }):
				return fmt.Errorf("volume %s has volumeMode Block, but is specified in volumeMounts", v.Name)
			case !block && slices.ContainsFunc(c.VolumeDevices,
				func(d corev1.VolumeDevice) bool { return d.Name == v.Name }):
				return fmt.Errorf("volume %s has volumeMode Filesystem, but is specified in volumeDevices", v.Name)
			}
		}
	}
	return nil
}

func isBlock(pv *corev1.PersistentVolume) bool {
	return pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == corev1.PersistentVolumeBlock
}
