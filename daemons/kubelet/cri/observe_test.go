package cri

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"clusterctl/daemons/kubelet/pod"
)

func TestObserverReadsUserSignalAndMounts(t *testing.T) {
	usr1 := corev1.SIGUSR1
	for name, c := range map[string]struct {
		reported *runtime.ContainerStatus
		want     pod.Container
	}{
		"nothing": {&runtime.ContainerStatus{}, pod.Container{}},
		"everything": {&runtime.ContainerStatus{
			User: &runtime.ContainerUser{Linux: &runtime.LinuxContainerUser{Uid: 1, Gid: 2,
				SupplementalGroups: []int64{2, 3}}},
			StopSignal: runtime.Signal_SIGNAL_SIGUSR1,
			Mounts:     []*runtime.Mount{{ContainerPath: "/a"}, {ContainerPath: "/b/", RecursiveReadOnly: true}},
		}, pod.Container{
			User: &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{UID: 1, GID: 2,
				SupplementalGroups: []int64{2, 3}}},
			StopSignal: &usr1, ReadOnly: []string{"/b"},
		}},
	} {
		got := Observer{}.containerOf("box", c.reported)
		if !reflect.DeepEqual(got.User, c.want.User) || !reflect.DeepEqual(got.StopSignal, c.want.StopSignal) ||
			!reflect.DeepEqual(got.ReadOnly, c.want.ReadOnly) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
