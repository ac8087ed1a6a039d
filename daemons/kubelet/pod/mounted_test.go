package pod

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// The status of a container lists its volume mounts before and after the container was created.
func TestContainerStatusReportsVolumeMounts(t *testing.T) {
	mode := func(m corev1.RecursiveReadOnlyMode) *corev1.RecursiveReadOnlyMode { return &m }
	spec := testContainer("m")
	spec.VolumeMounts = []corev1.VolumeMount{
		{Name: "a", MountPath: "/a"},
		{Name: "b", MountPath: "/b/", ReadOnly: true},
		{Name: "c", MountPath: "/c/", ReadOnly: true, RecursiveReadOnly: mode(corev1.RecursiveReadOnlyIfPossible)},
		{Name: "d", MountPath: "/d", ReadOnly: true, RecursiveReadOnly: mode(corev1.RecursiveReadOnlyIfPossible)},
		{Name: "e", MountPath: "/e", ReadOnly: true, RecursiveReadOnly: mode(corev1.RecursiveReadOnlyEnabled)},
		{Name: "f", MountPath: "/f", ReadOnly: true, RecursiveReadOnly: mode(corev1.RecursiveReadOnlyDisabled)},
	}
	text := func(list []corev1.VolumeMountStatus) string {
		var words []string
		for _, m := range list {
			words = append(words, fmt.Sprint(m.Name, " ", m.MountPath, " ", m.ReadOnly, " ",
				ptr.Deref(m.RecursiveReadOnly, "-")))
		}
		return strings.Join(words, ", ")
	}
	runs := attemptOf("m", 0, Running, 0, 0)
	runs.ReadOnly = []string{"/c", "/e"}
	for name, c := range map[string]struct {
		containers []Container
		want       string
	}{
		"before it is made": {nil, "a /a false -, b /b/ true Disabled, c /c/ true Disabled, d /d true Disabled, e /e " +
			"true Enabled, f /f true Disabled"},
		"while it runs": {[]Container{runs}, "a /a false -, b /b/ true Disabled, c /c/ true Enabled, d /d true " +
			"Disabled, e /e true Enabled, f /f true Disabled"},
	} {
		status := Status(runningFacts(func(f *Facts) {
			f.Pod.Spec.Containers[0] = spec
			f.Containers = c.containers
		}))
		if got := text(status.ContainerStatuses[0].VolumeMounts); got != c.want {
			t.Errorf("%s: %s\nwant %s", name, got, c.want)
		}
	}
}

// The user and the stop signal in a container's status come from the runtime, for all types of containers.
func TestContainerStatusReportsUserAndStopSignal(t *testing.T) {
	signal := corev1.SIGUSR1
	user := &corev1.ContainerUser{
		Linux: &corev1.LinuxContainerUser{UID: 1000, GID: 2000, SupplementalGroups: []int64{2000, 3000}},
	}
	status := Status(runningFacts(func(f *Facts) {
		f.Pod.Spec.InitContainers = []corev1.Container{testSidecar("s")}
		f.Pod.Spec.EphemeralContainers = ephemeralContainers("v")
		lifecycle := &corev1.Lifecycle{StopSignal: &signal}
		f.Pod.Spec.InitContainers[0].Lifecycle, f.Pod.Spec.Containers[0].Lifecycle = lifecycle, lifecycle
		for _, name := range []string{"s", "m", "v"} {
			c := attemptOf(name, 0, Running, 0, 0)
			c.User, c.StopSignal = user, &signal
			f.Containers = append(f.Containers, c)
		}
	}))
	for _, list := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses,
		status.EphemeralContainerStatuses} {
		if len(list) != 1 || list[0].User != user || (list[0].StopSignal == nil) != (list[0].Name == "v") ||
			list[0].StopSignal != nil && *list[0].StopSignal != signal {
			t.Errorf("%+v", list)
		}
	}
}

// The status has the health of a container's devices while they are prepared, and the last health afterwards.
func TestContainerStatusReportsDeviceHealth(t *testing.T) {
	statusOf := func(health corev1.ResourceHealthStatus) []corev1.ResourceStatus {
		return []corev1.ResourceStatus{
			{Name: "claim:c", Resources: []corev1.ResourceHealth{{ResourceID: "d/p/x", Health: health}}},
		}
	}
	for name, c := range map[string]struct {
		now  []corev1.ResourceStatus
		last []corev1.ResourceStatus
		want corev1.ResourceHealthStatus
	}{
		"none": {nil, nil, ""}, "at first": {statusOf("Healthy"), nil, "Healthy"},
		"later":      {statusOf("Unhealthy"), statusOf("Healthy"), "Unhealthy"},
		"taken back": {nil, statusOf("Unhealthy"), "Unhealthy"},
	} {
		status := Status(runningFacts(func(f *Facts) {
			f.Containers = []Container{attemptOf("m", 0, Running, 0, 0)}
			f.Devices = map[string][]corev1.ResourceStatus{"m": c.now}
			f.Pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "m", AllocatedResourcesStatus: c.last}}
		}))
		got := status.ContainerStatuses[0].AllocatedResourcesStatus
		if (len(got) > 0) != (c.want != "") || len(got) > 0 && got[0].Resources[0].Health != c.want {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
	}
}
