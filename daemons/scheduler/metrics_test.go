package scheduler

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"clusterctl/daemons/scheduler/profile"
	"clusterctl/kube/kubernetes/fake"
)

func gatedBy(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: name}} }
}

func TestPendingPodsAreCountedByQueue(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := newMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	s := newScheduler(fake.NewClientset(), slog.New(slog.DiscardHandler), m, profile.DefaultSettings())
	s.handleAdded(node("n1"), pod("large", withRequest("cpu", "5")))
	s.refuseNext(t, "large")
	s.handleAdded(pod("new"), pod("gated", gatedBy("g")), pod("opened", gatedBy("g")), pod("deleted", gatedBy("g")))
	s.handleAdded(pod("opened"))
	s.podDeleted(convertPod(pod("deleted", gatedBy("g"))))
	want := `# HELP scheduler_pending_pods Pods without a node, by the part of the queue they are in.
# TYPE scheduler_pending_pods gauge
scheduler_pending_pods{queue="active"} 2
scheduler_pending_pods{queue="backoff"} 0
scheduler_pending_pods{queue="gated"} 1
scheduler_pending_pods{queue="unschedulable"} 1
# HELP scheduler_preemption_attempts_total Attempts to make room for a pod by removing others.
# TYPE scheduler_preemption_attempts_total counter
scheduler_preemption_attempts_total 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "scheduler_pending_pods",
		"scheduler_preemption_attempts_total"); err != nil {
		t.Error(err)
	}
}

func TestAttemptsAreLabelledUpToFifteen(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := newMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, attempts := range []int{1, 14, 15, 40} {
		m.observeBound(attempts, time.Second)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{}
	for _, f := range families {
		for _, one := range f.GetMetric() {
			if f.GetName() == "scheduler_pod_scheduling_sli_duration_seconds" {
				got[one.GetLabel()[0].GetValue()] = one.GetHistogram().GetSampleCount()
			}
			if f.GetName() == "scheduler_pod_scheduling_attempts" && one.GetHistogram().GetSampleCount() != 4 {
				t.Errorf("%d pods with attempts", one.GetHistogram().GetSampleCount())
			}
		}
	}
	if len(got) != 3 || got["1"] != 1 || got["14"] != 1 || got["15+"] != 2 {
		t.Errorf("counted by attempts: %v", got)
	}
}

func TestPodsEnteringTheQueueAreCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := newMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	s := newScheduler(fake.NewClientset(), slog.New(slog.DiscardHandler), m, profile.DefaultSettings())
	c := newClock()
	s.queue.now = c.now
	full := pod("x", withNodeName("n1"), withRequest("cpu", "4"))
	s.handleAdded(node("n1"), full, pod("a", withRequest("cpu", "1")), pod("b", withRequest("cpu", "1")))
	s.refuseNext(t, "a")
	s.podDeleted(convertPod(full))
	if it, ok := s.queue.pop(); !ok {
		t.Fatal("no pod is tried")
	} else {
		s.queue.retry(it)
	}
	c.advance(time.Minute)
	s.queue.pop()
	want := `# HELP scheduler_queue_incoming_pods_total Pods that came into a part of the queue, by what brought them there.
# TYPE scheduler_queue_incoming_pods_total counter
scheduler_queue_incoming_pods_total{event="AssignedPodDelete",queue="backoff"} 2
scheduler_queue_incoming_pods_total{event="BackoffComplete",queue="active"} 2
scheduler_queue_incoming_pods_total{event="PopFromBackoffQ",queue="active"} 2
scheduler_queue_incoming_pods_total{event="ScheduleAttemptFailure",queue="backoff"} 2
scheduler_queue_incoming_pods_total{event="ScheduleAttemptFailure",queue="unschedulable"} 2
scheduler_queue_incoming_pods_total{event="UnschedulablePodAdd",queue="active"} 2
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want),
		"scheduler_queue_incoming_pods_total"); err != nil {
		t.Error(err)
	}
}

func TestPodRequestsAndLimitsAreMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := newMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	collector := podResources{m}
	if n := testutil.CollectAndCount(collector); n != 0 {
		t.Errorf("a scheduler that does not lead serves %d series", n)
	}
	s := newScheduler(fake.NewClientset(), slog.New(slog.DiscardHandler), m, profile.DefaultSettings())
	bounded := func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("2"),
			"example.com/gpu":  resource.MustParse("1"),
		}
	}
	s.handleAdded(node("n1"), pod("there", withRequest("cpu", "250m"), withRequest("memory", "1Gi"), bounded,
		withNodeName("n1")), pod("ended", withRequest("cpu", "1"), withNodeName("n1"),
		func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), pod("waits", withRequest("cpu", "1500m")),
		pod("same", withRequest("cpu", "1500m"), bounded), pod("nothing"))
	want := `# HELP kube_pod_resource_limit What a pod may use of a resource at most.
# TYPE kube_pod_resource_limit gauge
kube_pod_resource_limit{namespace="default",node="",pod="same",priority="0",resource="cpu",scheduler="default-scheduler",unit="cores"} 2
kube_pod_resource_limit{namespace="default",node="",pod="same",priority="0",resource="example.com/gpu",scheduler="default-scheduler",unit="integer"} 1
kube_pod_resource_limit{namespace="default",node="n1",pod="there",priority="0",resource="cpu",scheduler="default-scheduler",unit="cores"} 2
kube_pod_resource_limit{namespace="default",node="n1",pod="there",priority="0",resource="example.com/gpu",scheduler="default-scheduler",unit="integer"} 1
# HELP kube_pod_resource_request What a pod requests of a resource.
# TYPE kube_pod_resource_request gauge
kube_pod_resource_request{namespace="default",node="",pod="same",priority="0",resource="cpu",scheduler="default-scheduler",unit="cores"} 1.5
kube_pod_resource_request{namespace="default",node="",pod="waits",priority="0",resource="cpu",scheduler="default-scheduler",unit="cores"} 1.5
kube_pod_resource_request{namespace="default",node="n1",pod="there",priority="0",resource="cpu",scheduler="default-scheduler",unit="cores"} 0.25
kube_pod_resource_request{namespace="default",node="n1",pod="there",priority="0",resource="memory",scheduler="default-scheduler",unit="bytes"} 1.073741824e+09
`
	if err := testutil.CollectAndCompare(collector, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
