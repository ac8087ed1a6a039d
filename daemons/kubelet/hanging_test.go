package kubelet

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/kubelet/volume"
)

// stuckMounter is a Mounter whose tmpfs mounts and unmounts hang.
type stuckMounter struct {
	volume.Plain
	mount, unmount chan struct{}
}

func (s *stuckMounter) Tmpfs(path, options string) error {
	<-s.mount
	return s.Plain.Tmpfs(path, options)
}

func (s *stuckMounter) UnmountAll(dir string) error {
	<-s.unmount
	return s.Plain.UnmountAll(dir)
}

func TestAPodReportsItsHangingVolumes(t *testing.T) {
	n := newNode(t)
	s := &stuckMounter{mount: make(chan struct{}), unmount: make(chan struct{})}
	n.options.Mounter = s
	k := n.newKubelet()
	k.hangTimeout = time.Second // long enough for a volume that does not hang, however busy the machine is
	n.runKubelet(k)
	p := simplePod("web")
	p.Spec.Volumes = []corev1.Volume{
		{Name: "hangs",
			VolumeSource: corev1.VolumeSource{
				EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
		{Name: "well", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	}
	n.create(p)
	n.until("the event", n.hasEvent("FailedMount", `MountVolume.SetUp of volume "hangs" takes longer than 1s`))
	if n.hasEvent("FailedMount", `"well"`)() {
		t.Error("a volume that does not hang is reported")
	}
	close(s.mount)
	n.until("the pod to be ready", func() bool { return isReady(n.pod("web")) })
	if err := n.client.CoreV1().Pods("default").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	n.until("the event of the unmounting", n.hasEvent("FailedUnMount",
		"UnmountVolume.TearDown of the volumes takes longer than 1s"))
	close(s.unmount)
	n.until("the pod to go", func() bool { return n.pod("web") == nil })
}
