package job

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestIndexedPodsHaveTheirIndex(t *testing.T) {
	w := newTestCluster(true, func(s *batchv1.JobSpec) {
		s.Template.Spec.InitContainers = []corev1.Container{{Name: "i"}}
		s.Template.Spec.Containers = []corev1.Container{
			{Name: "c"},
			{Name: "own", Env: []corev1.EnvVar{{Name: "JOB_COMPLETION_INDEX", Value: "mine"}}},
		}
	})
	pod := newPod(w.job, 12, nil)
	if pod.GenerateName != "j-12-" || pod.Spec.Hostname != "j-12" ||
		pod.Labels["batch.kubernetes.io/job-completion-index"] != "12" ||
		pod.Annotations["batch.kubernetes.io/job-completion-index"] != "12" {
		t.Errorf("it is %s, host %s, with labels %v and annotations %v", pod.GenerateName, pod.Spec.Hostname,
			pod.Labels, pod.Annotations)
	}
	for _, c := range []corev1.Container{pod.Spec.InitContainers[0], pod.Spec.Containers[0]} {
		if len(c.Env) != 1 || c.Env[0].Name != "JOB_COMPLETION_INDEX" ||
			c.Env[0].ValueFrom.FieldRef.FieldPath != "metadata.labels['batch.kubernetes.io/job-completion-index']" {
			t.Errorf("%s has %+v", c.Name, c.Env)
		}
	}
	if own := pod.Spec.Containers[1].Env; len(own) != 1 || own[0].Value != "mine" {
		t.Errorf("a variable of the template's own becomes %+v", own)
	}
	w.job.Name = strings.Repeat("long", 15) // 60 bytes
	if pod := newPod(w.job, 12, nil); len(pod.GenerateName) != 58 || !strings.HasSuffix(pod.GenerateName, "-12-") {
		t.Errorf("of a long name it is %q, %d characters", pod.GenerateName, len(pod.GenerateName))
	}
}

// The delay before a pod is replaced counts from its end, which its containers do not always show.
func TestPodEndTimes(t *testing.T) {
	made := time.Unix(1_000_000, 0)
	after := func(s int) metav1.Time { return metav1.NewTime(made.Add(time.Duration(s) * time.Second)) }
	ended := func(s int) corev1.ContainerStatus {
		return corev1.ContainerStatus{
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: after(s)}},
		}
	}
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		want   int
	}{
		"its last container": {func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{ended(7), ended(9), ended(8)}
		}, 9},
		"evicted, no containers": {func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse,
				LastTransitionTime: after(50)}}
		}, 50},
		"a container's end is not known": {func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{ended(7), {}}
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse,
				LastTransitionTime: after(50)}}
		}, 50},
		"deleted": {func(p *corev1.Pod) {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = ptr.To(after(90)), ptr.To[int64](30)
		}, 60},
		"nothing is known": {func(*corev1.Pod) {}, 0},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(made)}}
		c.change(pod)
		if got := finishedAt(pod); !got.Equal(after(c.want).Time) {
			t.Errorf("%s: after %v, want %d s", name, got.Sub(made), c.want)
		}
	}
}

func TestAnEvictedPodIsReplacedAfterTheBackOff(t *testing.T) {
	w := newTestCluster(false,
		func(s *batchv1.JobSpec) { s.Completions, s.Parallelism = ptr.To[int32](1), ptr.To[int32](1) })
	w.step = time.Second
	w.sync()
	w.pods[0].CreationTimestamp = metav1.NewTime(w.now.Add(-time.Hour)) // it ran for a long time
	w.pods[0].Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Conditions: []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(w.now)}}}
	start := w.now
	for len(w.pods) == 1 && w.now.Sub(start) < time.Minute {
		w.sync()
	}
	if took := w.lastAt.Sub(start); took != 10*time.Second {
		t.Errorf("it is replaced after %v", took)
	}
}
