package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
)

// usualTolerance is the default tolerance.
var usualTolerance = Tolerance{Down: 0.1, Up: 0.1, Initialization: 5 * time.Minute, Readiness: 30 * time.Second}

var epoch = time.Date(2026, 3, 5, 10, 0, 0, 0, time.UTC)

// fakeMetrics implements Metrics with fixed values.
type fakeMetrics struct {
	pods  map[string]Sample // nil means an error
	total *int64
}

func (f fakeMetrics) samplesOrError() (map[string]Sample, error) {
	if f.pods == nil {
		return nil, errors.New("no metrics returned from resource metrics API")
	}
	return f.pods, nil
}

func (f fakeMetrics) totalOrError() (int64, error) {
	if f.total == nil {
		return 0, errors.New("no metrics returned from external metrics API")
	}
	return *f.total, nil
}

func (f fakeMetrics) Resource(
	context.Context,
	string,
	labels.Selector,
	corev1.ResourceName,
	string,
) (map[string]Sample, error) {
	return f.samplesOrError()
}

func (f fakeMetrics) Pods(
	context.Context,
	string,
	labels.Selector,
	autoscalingv2.MetricIdentifier,
) (map[string]Sample, error) {
	return f.samplesOrError()
}
func (f fakeMetrics) Object(context.Context, string, autoscalingv2.MetricIdentifier) (int64, error) {
	return f.totalOrError()
}
func (f fakeMetrics) External(context.Context, string, autoscalingv2.MetricIdentifier) (int64, error) {
	return f.totalOrError()
}

// podsUsing creates ready pods that request one core each, and their samples in thousandths. A pod "-" has no sample,
// "s" is starting, "p" is pending, "d" is being deleted, and "n" was never ready.
func podsUsing(words string) (out []*corev1.Pod, samples map[string]Sample) {
	samples = map[string]Sample{}
	for i, word := range strings.Fields(words) {
		started := metav1.NewTime(epoch.Add(-time.Hour))
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i)},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c",
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
				}}}},
			Status: corev1.PodStatus{
				Phase:     corev1.PodRunning,
				StartTime: &started,
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue,
					LastTransitionTime: metav1.NewTime(epoch.Add(-50 * time.Minute))}},
			},
		}
		sample := Sample{Value: 1000, At: epoch, Window: time.Minute}
		ready := &pod.Status.Conditions[0]
		switch word {
		case "-":
		case "s":
			pod.Status.StartTime = &metav1.Time{Time: epoch.Add(-time.Minute)}
			ready.LastTransitionTime = metav1.NewTime(epoch.Add(-30 * time.Second)) // for less than the sample's window
		case "p":
			pod.Status.Phase = corev1.PodPending
		case "d":
			pod.DeletionTimestamp = &metav1.Time{Time: epoch}
		case "n":
			ready.Status, ready.LastTransitionTime = corev1.ConditionFalse, started
		default:
			if _, err := fmt.Sscan(word, &sample.Value); err != nil {
				panic(err)
			}
		}
		if word != "-" {
			samples[pod.Name] = sample
		}
		out = append(out, pod)
	}
	return out, samples
}

func TestReplicasForAUtilization(t *testing.T) {
	for _, c := range []struct {
		pods   string
		target int32
		want   int32
	}{
		{"500 500 500", 50, 3}, {"550 550 550", 50, 3}, {"560 560 560", 50, 4}, {"1000 1000 1000", 50, 6},
		{"100 100 100 100", 50, 1}, {"460 460", 50, 2}, {"0 0", 50, 0},
		{"1000 1000 -", 50, 4},   // the missing pod is assumed to use nothing
		{"700 -", 60, 2},         // this assumption would reverse the direction
		{"100 100 100 -", 50, 3}, // the missing pod is assumed to use all that it requests
		{"400 -", 50, 2},         // the result would be more than the present number
		{"1000 1000 s", 50, 4}, {"1000 1000 p", 50, 4}, {"1000 1000 n", 50, 4}, {"1000 1000 d", 50, 4},
		{"100 100 s", 50, 1}, // when scaling down, starting pods do not count
		{"100 100 p", 50, 1},
	} {
		pods, samples := podsUsing(c.pods)
		got, err := byUtilization(int32(len(pods)), c.target, pods, samples, corev1.ResourceCPU, "", usualTolerance,
			epoch)
		if err != nil || got.Replicas != c.want {
			t.Errorf("%s at %d%%: %d, %v; want %d", c.pods, c.target, got.Replicas, err, c.want)
		}
	}
}

// A request of a thousandth and a usage of terabytes: the ratio exceeds an int32, and the percentage exceeds an int64.
func TestAUtilizationIsNeverNegative(t *testing.T) {
	for _, value := range []int64{1 << 40, 1 << 60} {
		pods, samples := podsUsing("1 1")
		for i := range pods {
			pods[i].Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("1m")
			samples[pods[i].Name] = Sample{Value: value, At: epoch, Window: time.Minute}
		}
		got, err := byUtilization(2, 50, pods, samples, corev1.ResourceCPU, "", usualTolerance, epoch)
		if err != nil || got.Utilization != math.MaxInt32 || got.Replicas != math.MaxInt32 {
			t.Errorf("a use of %d: %+v, %v", value, got, err)
		}
	}
}

func TestMissingSamplesAreErrors(t *testing.T) {
	for words, want := range map[string]string{"": "no pods returned by selector while calculating replica " +
		"count", "s p": "did not receive metrics for targeted pods (pods might be unready)",
		"- -": "did not receive metrics for targeted pods (pods might be unready)"} {
		pods, samples := podsUsing(words)
		if _, err := byUtilization(2, 50, pods, samples, corev1.ResourceCPU, "", usualTolerance, epoch); err == nil ||
			err.Error() != want {
			t.Errorf("%q: %v, want %s", words, err, want)
		}
	}
	pods, samples := podsUsing("100")
	pods[0].Spec.Containers[0].Resources.Requests = nil
	if _, err := byUtilization(1, 50, pods, samples, corev1.ResourceCPU, "", usualTolerance, epoch); err == nil ||
		err.Error() != "missing request for cpu in container c of Pod p0" {
		t.Errorf("without a request: %v", err)
	}
	if _, err := requestOf(pods[0], corev1.ResourceCPU, "x"); err == nil ||
		err.Error() != "container x not found in Pod p0" {
		t.Errorf("another container: %v", err)
	}
}

func TestReplicasForAnAverage(t *testing.T) {
	for _, c := range []struct {
		pods   string
		target int64
		want   int32
	}{{"500 500", 500, 2}, {"1000 1000", 500, 4}, {"100 100", 500, 1}, {"1000 1000 -", 500, 4},
		{"100 100 100 -", 500, 2}, {"1000 1000 p", 500, 4}, {"1000 1000 s", 1000, 3}} {
		pods, samples := podsUsing(c.pods)
		got, err := byAverage(int32(len(pods)), c.target, pods, samples, "", usualTolerance, epoch)
		if err != nil || got.Replicas != c.want {
			t.Errorf("%s at %d: %d, %v; want %d", c.pods, c.target, got.Replicas, err, c.want)
		}
	}
}

func autoscaler(minimum, maximum int32, metrics ...autoscalingv2.MetricSpec) *autoscalingv2.HorizontalPodAutoscaler {
	return &autoscalingv2.HorizontalPodAutoscaler{
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MinReplicas: &minimum, MaxReplicas: maximum, Metrics: metrics},
	}
}

func cpu(percent int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{
		Type: autoscalingv2.ResourceMetricSourceType,
		Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceCPU,
			Target: autoscalingv2.MetricTarget{
				Type:               autoscalingv2.UtilizationMetricType,
				AverageUtilization: &percent,
			}},
	}
}

func external(target autoscalingv2.MetricTarget) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{
		Type: autoscalingv2.ExternalMetricSourceType,
		External: &autoscalingv2.ExternalMetricSource{
			Metric: autoscalingv2.MetricIdentifier{Name: "queue"},
			Target: target,
		},
	}
}

func object(target autoscalingv2.MetricTarget) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{
		Type: autoscalingv2.ObjectMetricSourceType,
		Object: &autoscalingv2.ObjectMetricSource{Metric: autoscalingv2.MetricIdentifier{Name: "hits"},
			DescribedObject: autoscalingv2.CrossVersionObjectReference{Kind: "Ingress", Name: "i"}, Target: target},
	}
}

func perPod(quantity string) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{
		Type: autoscalingv2.PodsMetricSourceType,
		Pods: &autoscalingv2.PodsMetricSource{
			Metric: autoscalingv2.MetricIdentifier{Name: "hits"},
			Target: average(quantity),
		},
	}
}

func average(quantity string) autoscalingv2.MetricTarget {
	return autoscalingv2.MetricTarget{
		Type:         autoscalingv2.AverageValueMetricType,
		AverageValue: ptr.To(resource.MustParse(quantity)),
	}
}

func total(quantity string) autoscalingv2.MetricTarget {
	return autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: ptr.To(resource.MustParse(quantity))}
}

func inContainer(percent int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{
		Type: autoscalingv2.ContainerResourceMetricSourceType,
		ContainerResource: &autoscalingv2.ContainerResourceMetricSource{Name: corev1.ResourceCPU, Container: "c",
			Target: autoscalingv2.MetricTarget{
				Type:               autoscalingv2.UtilizationMetricType,
				AverageUtilization: &percent,
			}},
	}
}

//style:long a table of autoscalers, with the decision on each
func TestAutoscalerDecisions(t *testing.T) {
	fast := &autoscalingv2.HorizontalPodAutoscalerBehavior{
		ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: ptr.To[int32](0),
			Policies: []autoscalingv2.HPAScalingPolicy{
				{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15},
			}},
	}
	for name, c := range map[string]struct {
		hpa     *autoscalingv2.HorizontalPodAutoscaler
		change  func(*autoscalingv2.HorizontalPodAutoscaler)
		pods    string
		wanted  int32 // zero means as many as pods
		total   *int64
		asleep  bool // the autoscaler itself scaled it to zero
		silent  bool // there are no samples of pods
		history History
		want    int32
		reason  string
		message string // reasons of AbleToScale, ScalingActive, ScalingLimited
		events  string
	}{
		"on target": {hpa: autoscaler(1, 10, cpu(50)), pods: "500 500", want: 2, message: "ReadyForNewScale " +
			"ValidMetricFound DesiredWithinRange"},
		"more load": {hpa: autoscaler(1, 10, cpu(50)), pods: "1000 1000", want: 4, reason: "cpu resource " +
			"utilization (percentage of request) above target", message: "ReadyForNewScale ValidMetricFound " +
			"DesiredWithinRange"},
		"one container": {hpa: autoscaler(1, 10, inContainer(50)), pods: "1000 1000", want: 4,
			reason: "cpu container resource utilization (percentage of request) above " +
				"target", message: "ReadyForNewScale ValidMetricFound DesiredWithinRange"},
		"per pod": {hpa: autoscaler(1, 10, perPod("500m")), pods: "1000 1000", want: 4,
			reason: "pods metric hits above target", message: "ReadyForNewScale ValidMetricFound DesiredWithinRange"},
		"an object": {hpa: autoscaler(1, 10, object(total("10"))), pods: "1 1", total: ptr.To[int64](15000),
			want: 3, reason: "Ingress metric hits above target", message: "ReadyForNewScale ValidMetricFound " +
				"DesiredWithinRange"},
		"an object's share": {hpa: autoscaler(1, 10, object(average("10"))), pods: "1 1", total: ptr.To[int64](31000),
			want: 4, reason: "Ingress metric hits above target", message: "ReadyForNewScale ValidMetricFound " +
				"DesiredWithinRange"},
		"a queue": {hpa: autoscaler(1, 10, external(total("10"))), pods: "1 1", total: ptr.To[int64](20000),
			want: 4, reason: "external metric queue(nil) above target", message: "ReadyForNewScale ValidMetricFound " +
				"DesiredWithinRange"},
		"none, and a queue": {hpa: autoscaler(0, 10, external(total("10"))), asleep: true, pods: "",
			total: ptr.To[int64](20000), want: 2, reason: "external metric queue(nil) above " +
				"target", message: "ReadyForNewScale ValidMetricFound DesiredWithinRange"},
		"none, and more in the queue than four pods at once are for": {hpa: autoscaler(0, 10, external(total("10"))),
			asleep: true, total: ptr.To[int64](90000), want: 4, reason: "external metric queue(nil) above " +
				"target", message: "ReadyForNewScale ValidMetricFound ScaleUpLimit"},
		"none, and an empty queue": {hpa: autoscaler(0, 10, external(total("10"))), asleep: true,
			total: ptr.To[int64](0), want: 0, message: "ReadyForNewScale ValidMetricFound DesiredWithinRange"},
		"none, and nobody knows the queue": {hpa: autoscaler(0, 10, external(total("10"))), asleep: true, want: 0,
			message: "- FailedGetExternalMetric -", events: "FailedGetExternalMetric FailedComputeMetricsReplicas"},
		"none, by somebody's hand": {hpa: autoscaler(0, 10, external(total("10"))),
			total: ptr.To[int64](20000), want: 0, message: "- ScalingDisabled -"},
		"none, and the minimum is three by now": {hpa: autoscaler(3, 10, external(total("10"))), asleep: true,
			total: ptr.To[int64](0), want: 3, reason: "Current number of replicas below " +
				"Spec.MinReplicas", message: "ReadyForNewScale ValidMetricFound TooFewReplicas"},
		"none, and no such metric by now": {hpa: autoscaler(0, 10, cpu(50)), asleep: true, want: 0,
			message: "- ScalingDisabled -"},
		"an empty queue": {hpa: autoscaler(0, 10, external(total("10"))),
			change: func(h *autoscalingv2.HorizontalPodAutoscaler) { h.Spec.Behavior = fast }, pods: "1 1",
			total:   ptr.To[int64](0),
			history: History{Recommended: []TimedValue{{epoch.Add(-time.Hour), 2}}}, want: 0,
			reason: "All metrics below " +
				"target", message: "ReadyForNewScale ValidMetricFound DesiredWithinRange"},
		"the most of all": {hpa: autoscaler(1, 10, cpu(50), external(average("1"))),
			pods: "1000 1000", total: ptr.To[int64](4500), want: 4, message: "ReadyForNewScale ValidMetricFound " +
				"ScaleUpLimit", reason: "external metric queue(nil) above target"},
		"less load, a moment ago": {hpa: autoscaler(1, 10, cpu(50)), pods: "100 100 100",
			want: 3, reason: "All metrics below target", message: "ScaleDownStabilized ValidMetricFound " +
				"DesiredWithinRange"},
		"less load for long": {hpa: autoscaler(1, 10, cpu(50)), pods: "100 100 100",
			history: History{Recommended: []TimedValue{{epoch.Add(-299 * time.Second), 1}}}, want: 1,
			reason: "All metrics below target", message: "ReadyForNewScale ValidMetricFound DesiredWithinRange"},
		"less than the minimum": {hpa: autoscaler(2, 10, cpu(50)), pods: "1 1 1",
			history: History{Recommended: []TimedValue{{epoch.Add(-299 * time.Second), 0}}}, want: 2,
			reason: "All metrics below target", message: "ReadyForNewScale ValidMetricFound TooFewReplicas"},
		"more than the maximum": {hpa: autoscaler(1, 3, cpu(50)), pods: "1000 1000",
			want: 3, reason: "cpu resource utilization (percentage of request) above " +
				"target", message: "ReadyForNewScale ValidMetricFound TooManyReplicas"},
		"much more load": {hpa: autoscaler(1, 100, cpu(10)), pods: "1000 1000 1000",
			want: 6, reason: "cpu resource utilization (percentage of request) above " +
				"target", message: "ReadyForNewScale ValidMetricFound ScaleUpLimit"},
		"a queue, and pods that are yet to come": {hpa: autoscaler(1, 10, external(total("10"))), wanted: 5,
			total: ptr.To[int64](50000), want: 5, message: "- FailedGetExternalMetric " +
				"-", events: "FailedGetExternalMetric FailedComputeMetricsReplicas"},
		"an object, and pods that are yet to come": {hpa: autoscaler(1, 10, object(total("10"))), wanted: 5,
			total: ptr.To[int64](50000), want: 5, message: "- FailedGetObjectMetric " +
				"-", events: "FailedGetObjectMetric FailedComputeMetricsReplicas"},
		"less load, and more than the maximum a moment ago": {hpa: autoscaler(1, 3, cpu(50)), pods: "100 100 100",
			history: History{Recommended: []TimedValue{{epoch.Add(-time.Minute), 8}}}, want: 3, reason: "All metrics " +
				"below target", message: "ScaleDownStabilized ValidMetricFound TooManyReplicas"},
		"fewer by hand than were asked for a moment ago": {hpa: autoscaler(1, 10, cpu(50)), pods: "100 100 100",
			history: History{Recommended: []TimedValue{{epoch.Add(-time.Minute), 5}}}, want: 5, reason: "All metrics " +
				"below target", message: "ScaleDownStabilized ValidMetricFound DesiredWithinRange"},
		"above the bounds": {hpa: autoscaler(1, 3, cpu(50)), wanted: 5, want: 3, reason: "Current number of " +
			"replicas above Spec.MaxReplicas", message: "- - -"},
		"below the bounds": {hpa: autoscaler(3, 5, cpu(50)), wanted: 1, want: 3, reason: "Current number of " +
			"replicas below Spec.MinReplicas", message: "- - -"},
		"switched off": {hpa: autoscaler(1, 5, cpu(50)), want: 0, message: "- ScalingDisabled -"},
		"nothing measured": {hpa: autoscaler(1, 5, cpu(50)), wanted: 3, silent: true, want: 3,
			message: "- FailedGetResourceMetric -", events: "FailedGetResourceMetric FailedComputeMetricsReplicas"},
		"one of two says fewer": {hpa: autoscaler(1, 5, cpu(50), external(average("1"))), pods: "100 100", want: 2,
			message: "- FailedGetExternalMetric -", events: "FailedGetExternalMetric FailedComputeMetricsReplicas"},
		"one of two says more": {hpa: autoscaler(1, 5, cpu(50), external(average("1"))), pods: "1000 1000", want: 4,
			message: "ReadyForNewScale ValidMetricFound DesiredWithinRange", events: "FailedGetExternalMetric",
			reason: "cpu resource utilization (percentage of request) above target"},
		"within its own tolerance": {hpa: autoscaler(1, 10, cpu(50)),
			change: func(h *autoscalingv2.HorizontalPodAutoscaler) {
				h.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{
					ScaleUp: &autoscalingv2.HPAScalingRules{Tolerance: ptr.To(resource.MustParse("0.5"))}}
			}, pods: "700 700", want: 2, message: "ReadyForNewScale ValidMetricFound DesiredWithinRange"},
	} {
		t.Run(name, func(t *testing.T) {
			pods, samples := podsUsing(c.pods)
			if c.silent {
				samples = nil
			}
			if c.change != nil {
				c.change(c.hpa)
			}
			wanted := c.wanted
			if wanted == 0 {
				wanted = int32(len(pods))
			}
			goal := target{
				pods:           pods,
				specReplicas:   wanted,
				statusReplicas: int32(len(pods)),
				tolerance:      effectiveTolerance(usualTolerance, c.hpa.Spec.Behavior),
				downWindow:     5 * time.Minute,
				now:            epoch,
				objectPath:     func(autoscalingv2.CrossVersionObjectReference) (string, error) { return "i", nil },
			}
			seen := &conditions{now: epoch}
			if c.asleep {
				seen.setScaledToZero(autoscaler(0, 10, external(total("10"))), 1, 0)
			}
			o := Decide(t.Context(), c.hpa, goal, fakeMetrics{samples, c.total}, &c.history, seen)
			if o.Replicas != c.want || o.Reason != c.reason || o.Rescale != (c.want != wanted) {
				t.Errorf("%d replicas for %q, rescale %t; want %d for %q", o.Replicas, o.Reason, o.Rescale, c.want,
					c.reason)
			}
			if got := conditionText(seen); got != c.message {
				t.Errorf("says %q, want %q", got, c.message)
			}
			var events []string
			for _, e := range o.Events {
				events = append(events, e.Reason)
			}
			if got := strings.Join(events, " "); got != c.events {
				t.Errorf("events %q, want %q", got, c.events)
			}
		})
	}
}

func TestScalingToZeroIsRecorded(t *testing.T) {
	queue := external(total("10"))
	for name, c := range map[string]struct {
		hpa      *autoscalingv2.HorizontalPodAutoscaler
		from, to int32
		want     string
	}{
		"to zero": {autoscaler(0, 5, queue), 2, 0, "True ScaledToZero the HPA controller " +
			"scaled the workload to zero"},
		"from zero": {autoscaler(0, 5, queue), 0, 2, "False NotScaledToZero the HPA controller " +
			"did not scale the workload to zero"},
		"to less": {autoscaler(0, 5, queue), 3, 2, "False NotScaledToZero the HPA controller " +
			"did not scale the workload to zero"},
		"one that may not go to zero": {autoscaler(1, 5, queue), 2, 1, "False NotScaledToZero the HPA controller " +
			"did not scale the workload to zero"},
		"without such a metric, somehow": {autoscaler(0, 5, cpu(50)), 2, 0, "False NotScaledToZero the HPA " +
			"controller did not scale the workload to zero"},
	} {
		seen := &conditions{now: epoch}
		seen.setScaledToZero(c.hpa, c.from, c.to)
		if got := seen.list[0]; len(seen.list) != 1 || got.Type != "ScaledToZero" ||
			string(got.Status)+" "+got.Reason+" "+got.Message != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func conditionText(c *conditions) string {
	out := []string{"-", "-", "-"}
	for _, got := range c.list {
		for i, kind := range []autoscalingv2.HorizontalPodAutoscalerConditionType{autoscalingv2.AbleToScale,
			autoscalingv2.ScalingActive, autoscalingv2.ScalingLimited} {
			if got.Type == kind {
				out[i] = got.Reason
			}
		}
	}
	return strings.Join(out, " ")
}
