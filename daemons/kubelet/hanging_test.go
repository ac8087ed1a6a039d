package kubelet

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/kubelet/usage"
	"clusterctl/daemons/kubelet/volume"
)

// podWithClaim returns a pod with a volume of a claim.
func podWithClaim(name, claim string) *corev1.Pod {
	p := simplePod(name)
	p.Spec.Volumes = []corev1.Volume{{Name: "data",
		VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{
			ClaimName: claim}}}}
	return p
}

// A volume whose disk or server hangs blocks only one goroutine, no matter how often its usage is requested, and no
// measurement of another volume.
func TestAHungVolumeDoesNotBlockTheSummary(t *testing.T) {
	end := make(chan struct{})
	var asked, reported atomic.Int32
	c := usage.Meter{HangTimeout: time.Millisecond}
	c.Measure = func(p *corev1.Pod, v *corev1.Volume) (volume.Use, error) {
		if volume.ClaimName(p, v) == "hung" {
			asked.Add(1)
			<-end
			return volume.Use{Used: 2}, nil
		}
		if p.Name == "unmounted" {
			return volume.Use{}, errors.New("not mounted")
		}
		return volume.Use{Used: 1}, nil
	}
	c.ReportHanging = func(pods []usage.Mounted, claim string, _ time.Duration) {
		if reported.Add(1); len(pods) != 2 || claim != "hung" {
			t.Errorf("claim %s of %d pods hangs", claim, len(pods))
		}
	}
	pods := []*corev1.Pod{podWithClaim("a", "hung"), podWithClaim("b", "hung"), podWithClaim("c", "well"),
		podWithClaim("unmounted", "well"), podWithClaim("d", "well")}
	for range 5 {
		uses := c.UsageByPod(pods)
		if len(uses["uid-a"]) > 0 || len(uses["uid-c"]) != 1 || len(uses["uid-d"]) != 1 || uses["uid-d"][0].Used != 1 {
			t.Fatalf("the figures are %+v", uses)
		}
	}
	if asked.Load() != 1 || reported.Load() != 1 {
		t.Errorf("the hung volume was asked %d times, and told of %d times", asked.Load(), reported.Load())
	}
	close(end)
	deadline := time.Now().Add(10 * time.Second)
	for len(c.UsageByPod(pods)["uid-b"]) == 0 {
		if time.Now().After(deadline) {
			t.Fatal("the volume has no figure when it answers again")
		}
	}
	c.UsageByPod(nil)
	if c.Mu.Lock(); len(c.Claims) > 0 {
		t.Errorf("%d volumes are known that no pod has", len(c.Claims))
	}
	c.Mu.Unlock()
}

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
