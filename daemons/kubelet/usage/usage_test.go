package usage

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/kubelet/volume"
)

// podWithClaim returns a pod with a volume of a claim.
func podWithClaim(name, claim string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name)}}
	p.Spec.Volumes = []corev1.Volume{{Name: "data",
		VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{
			ClaimName: claim}}}}
	return p
}

// A volume whose disk or server hangs blocks only one goroutine, no matter how often its usage is requested, and no
// measurement of another volume.
func TestAHungVolumeDoesNotBlockTheSummary(t *testing.T) {
	end := make(chan struct{})
	var requests, reported atomic.Int32
	c := Meter{HangTimeout: time.Millisecond}
	c.Measure = func(p *corev1.Pod, v *corev1.Volume) (volume.Use, error) {
		if volume.ClaimName(p, v) == "hung" {
			requests.Add(1)
			<-end
			return volume.Use{Used: 2}, nil
		}
		if p.Name == "unmounted" {
			return volume.Use{}, errors.New("not mounted")
		}
		return volume.Use{Used: 1}, nil
	}
	c.ReportHanging = func(pods []Mounted, claim string, _ time.Duration) {
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
	if requests.Load() != 1 || reported.Load() != 1 {
		t.Errorf("the hung volume was read %d times and reported %d times", requests.Load(), reported.Load())
	}
	close(end)
	deadline := time.Now().Add(10 * time.Second)
	for len(c.UsageByPod(pods)["uid-b"]) == 0 {
		if time.Now().After(deadline) {
			t.Fatal("the volume has no figure when it answers again")
		}
	}
	c.UsageByPod(nil)
	if c.mu.Lock(); len(c.claims) > 0 {
		t.Errorf("%d volumes are known that no pod has", len(c.claims))
	}
	c.mu.Unlock()
}
