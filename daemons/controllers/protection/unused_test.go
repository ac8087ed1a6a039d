package protection

import (
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/daemons/kinds/storage"
	"clusterctl/kube/kubernetes/fake"
)

// The condition Unused reports whether a pod uses a claim, and since when. Each step happens a minute after the
// previous one.
func TestUnusedConditionReportsSinceWhen(t *testing.T) {
	pod := podOfClaim
	own := pod("p", "n", corev1.PodRunning)
	own.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
	other := pod("o", "n", corev1.PodRunning)
	other.Namespace = "e"
	now := metav1.Now()
	resizing := corev1.PersistentVolumeClaimCondition{
		Type:   corev1.PersistentVolumeClaimResizing,
		Status: corev1.ConditionTrue,
	}
	type status struct {
		current, reason, message string
		minute                   int
	}
	none := status{}
	unused := func(minute int) status {
		return status{"True", "NoPodsUsingPVC", "No pods are currently referencing this PVC", minute}
	}
	used := func(minute int) status {
		return status{"False", "PodUsingPVC", "A pod is currently referencing this PVC", minute}
	}
	start := time.Unix(1e9, 0)
	clock := testingclock.NewFakeClock(start)
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "c", Finalizers: []string{storage.ClaimProtection}},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}
	for i, step := range []struct {
		name   string
		pods   []*corev1.Pod
		change func(*corev1.PersistentVolumeClaim)
		want   status
	}{
		{"it waits for a volume", []*corev1.Pod{pod("a", "n", corev1.PodRunning)}, nil, none},
		{"it is bound", nil, func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimBound }, unused(1)},
		{"nothing has changed", nil, nil, unused(1)},
		{"another namespace's pod has one of the name", []*corev1.Pod{other}, nil, unused(1)},
		{"a pod's own claim would have another owner", []*corev1.Pod{own}, nil, unused(1)},
		{"a pod waits for a node", []*corev1.Pod{pod("a", "", corev1.PodPending)}, nil, used(5)},
		{"it runs", []*corev1.Pod{pod("a", "n", corev1.PodRunning)}, nil, used(5)},
		{"a second one comes and the first ends",
			[]*corev1.Pod{pod("a", "n", corev1.PodSucceeded), pod("b", "n", corev1.PodRunning)}, nil, used(5)},
		{"both have ended", []*corev1.Pod{pod("a", "n", corev1.PodSucceeded), pod("b", "n", corev1.PodFailed)}, nil,
			unused(8)},
		{"they are gone, and it grows", nil, func(c *corev1.PersistentVolumeClaim) {
			c.Status.Conditions = append([]corev1.PersistentVolumeClaimCondition{resizing}, c.Status.Conditions...)
		}, unused(8)},
		{"one comes again", []*corev1.Pod{pod("a", "n", corev1.PodRunning)}, nil, used(10)},
		{"it is being deleted while it is used", []*corev1.Pod{pod("a", "n", corev1.PodRunning)},
			func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &now }, used(10)},
		{"its pod has ended", []*corev1.Pod{pod("a", "n", corev1.PodSucceeded)}, nil, used(10)},
	} {
		clock.SetTime(start.Add(time.Duration(i) * time.Minute))
		if step.change != nil {
			step.change(claim)
		}
		claim = syncClaim(t, clock, claim, step.pods, step.name)
		got, others := none, 0
		for _, c := range claim.Status.Conditions {
			if c.Type != corev1.PersistentVolumeClaimUnused {
				others++
				continue
			}
			got = status{string(c.Status), c.Reason, c.Message, int(c.LastTransitionTime.Sub(start) / time.Minute)}
		}
		if got != step.want || others > 0 && i < 9 || others != 1 && i >= 9 {
			t.Errorf("%s: it says %+v, want %+v, beside %d others", step.name, got, step.want, others)
		}
	}
}

// syncClaim returns a claim after a sync.
func syncClaim(t *testing.T, clock *testingclock.FakeClock, claim *corev1.PersistentVolumeClaim, pods []*corev1.Pod,
	step string) *corev1.PersistentVolumeClaim {
	client := fake.NewClientset(claim)
	factory := informers.New(client)
	p := NewClaims(loop.Context{Client: client, Informers: factory, Clock: clock,
		Log: slog.New(slog.DiscardHandler)}).(*claims)
	if err := informers.PersistentVolumeClaims(factory).Informer().GetIndexer().Add(claim); err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods {
		if err := informers.Pods(factory).Informer().GetIndexer().Add(pod); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.sync(t.Context(), "d/c"); err != nil {
		t.Fatalf("%s: %v", step, err)
	}
	claim, err := client.CoreV1().PersistentVolumeClaims("d").Get(t.Context(), "c",
		metav1.GetOptions{})
	if err != nil {
		t.Fatalf("%s: %v", step, err)
	}
	return claim
}

// podOfClaim returns a pod that uses the claim c.
func podOfClaim(name, node string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name},
		Status:     corev1.PodStatus{Phase: phase},
		Spec: corev1.PodSpec{NodeName: node,
			Volumes: []corev1.Volume{
				{
					Name: "v",
					VolumeSource: corev1.VolumeSource{
						PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"},
					},
				},
			}},
	}
}
