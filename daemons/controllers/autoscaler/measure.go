package autoscaler

import (
	"context"
	"fmt"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// target is the current state of the object that an autoscaler scales.
type target struct {
	namespace                    string
	selector                     labels.Selector
	pods                         []*corev1.Pod
	specReplicas, statusReplicas int32 // replicas by its spec and by its status
	tolerance                    Tolerance
	downWindow                   time.Duration // scale-down stabilization, for autoscalers that set none
	now                          time.Time
	// findPods sets the selector and the pods, or returns why it cannot. It is nil if they are set already.
	findPods func(*target) error
	// returns the path of an object for Metrics.Object
	objectPath func(autoscalingv2.CrossVersionObjectReference) (string, error)
	// observe is called before a metric is measured, and returns a function to call with the result. nil means that
	// measurements are not counted.
	observe func(autoscalingv2.MetricSourceType) func(requests int32, f *failure)
}

// metricResult is the number of replicas that a metric asks for, with its name and status.
type metricResult struct {
	replicas int32
	name     string
	status   autoscalingv2.MetricStatus
}

// failure is the reason why a metric could not be evaluated. reason is used in the condition and the event.
type failure struct {
	reason string
	err    error
}

func (t target) measure(ctx context.Context, m Metrics, spec autoscalingv2.MetricSpec) (metricResult, *failure) {
	var a metricResult
	var err error
	a.status.Type = spec.Type
	reason := "FailedGet" + string(spec.Type) + "Metric"
	switch {
	case spec.Type == autoscalingv2.ResourceMetricSourceType && spec.Resource != nil:
		r := spec.Resource
		var current autoscalingv2.MetricValueStatus
		a.replicas, a.name, current, err = t.evaluateResource(ctx, m, r.Name, "", r.Target)
		a.status.Resource = &autoscalingv2.ResourceMetricStatus{Name: r.Name, Current: current}
	case spec.Type == autoscalingv2.ContainerResourceMetricSourceType && spec.ContainerResource != nil:
		r := spec.ContainerResource
		var current autoscalingv2.MetricValueStatus
		a.replicas, a.name, current, err = t.evaluateResource(ctx, m, r.Name, r.Container, r.Target)
		a.status.ContainerResource = &autoscalingv2.ContainerResourceMetricStatus{
			Name:      r.Name,
			Container: r.Container,
			Current:   current,
		}
	case spec.Type == autoscalingv2.PodsMetricSourceType && spec.Pods != nil:
		a.name = "pods metric " + spec.Pods.Metric.Name
		var samples map[string]Sample
		if samples, err = m.Pods(ctx, t.namespace, t.selector, spec.Pods.Metric); err != nil {
			err = fmt.Errorf("unable to get metric %s: %w", spec.Pods.Metric.Name, err)
			break
		}
		var u Evaluation
		u, err = byAverage(t.specReplicas, value(spec.Pods.Target.AverageValue), t.pods, samples, "", t.tolerance,
			t.now)
		a.replicas = u.Replicas
		a.status.Pods = &autoscalingv2.PodsMetricStatus{
			Metric:  spec.Pods.Metric,
			Current: autoscalingv2.MetricValueStatus{AverageValue: milli(u.Average)},
		}
	case spec.Type == autoscalingv2.ObjectMetricSourceType && spec.Object != nil:
		o := spec.Object
		a.name = fmt.Sprintf("%s metric %s", o.DescribedObject.Kind, o.Metric.Name)
		var at string
		var total int64
		if at, err = t.objectPath(o.DescribedObject); err == nil {
			total, err = m.Object(ctx, at, o.Metric)
		}
		if err != nil {
			err = fmt.Errorf("unable to get metric %s: %s on %s %s/%w", o.Metric.Name, o.DescribedObject.Kind,
				t.namespace, o.DescribedObject.Name, err)
			break
		}
		var current autoscalingv2.MetricValueStatus
		a.replicas, current, err = t.evaluateTotal(o.Target, total)
		a.status.Object = &autoscalingv2.ObjectMetricStatus{
			DescribedObject: o.DescribedObject,
			Metric:          o.Metric,
			Current:         current,
		}
	case spec.Type == autoscalingv2.ExternalMetricSourceType && spec.External != nil:
		e := spec.External
		a.name = fmt.Sprintf("external metric %s(%+v)", e.Metric.Name, e.Metric.Selector)
		var total int64
		if total, err = m.External(ctx, t.namespace, e.Metric); err != nil {
			err = fmt.Errorf("unable to get external metric %s/%s/%s: %w", t.namespace, e.Metric.Name,
				metav1.FormatLabelSelector(e.Metric.Selector), err)
			break
		}
		var current autoscalingv2.MetricValueStatus
		a.replicas, current, err = t.evaluateTotal(e.Target, total)
		a.status.External = &autoscalingv2.ExternalMetricStatus{Metric: e.Metric, Current: current}
	default:
		return a, &failure{"InvalidMetricSourceType", specError{fmt.Errorf("unknown metric source type %q", spec.Type)}}
	}
	if err != nil {
		return a, &failure{reason, err}
	}
	return a, nil
}

// evaluateResource evaluates a metric about the resource use of pods, or of one container of each pod.
func (t target) evaluateResource(
	ctx context.Context,
	m Metrics,
	name corev1.ResourceName,
	container string,
	to autoscalingv2.MetricTarget,
) (
	replicas int32, metric string, current autoscalingv2.MetricValueStatus, err error) {
	kind := "resource"
	if container != "" {
		kind = "container resource"
	}
	samples, err := m.Resource(ctx, t.namespace, t.selector, name, container)
	var u Evaluation
	switch {
	case err != nil:
		err = fmt.Errorf("unable to get metrics for resource %s: %w", name, err)
	case to.AverageValue != nil:
		u, err = byAverage(t.specReplicas, value(to.AverageValue), t.pods, samples, name, t.tolerance, t.now)
	case to.AverageUtilization != nil:
		u, err = byUtilization(t.specReplicas, *to.AverageUtilization, t.pods, samples, name, container, t.tolerance,
			t.now)
		current.AverageUtilization = &u.Utilization
	default:
		err = fmt.Errorf("neither a utilization target nor a value target was set")
	}
	current.AverageValue = milli(u.Average)
	if to.AverageValue != nil {
		return u.Replicas, fmt.Sprintf("%s %s", name, kind), current, wrapMetricError(err, "failed to get %s usage: "+
			"%w", name)
	}
	return u.Replicas, fmt.Sprintf("%s %s utilization (percentage of request)", name, kind), current, wrapMetricError(
		err,
		"failed to get %s utilization: %w",
		name,
	)
}

// evaluateTotal evaluates a metric that is one number for all pods.
func (t target) evaluateTotal(to autoscalingv2.MetricTarget, total int64) (int32,
	autoscalingv2.MetricValueStatus, error) {
	if to.AverageValue != nil {
		u := byShare(t.statusReplicas, value(to.AverageValue), total, t.tolerance)
		return u.Replicas, autoscalingv2.MetricValueStatus{AverageValue: milli(u.Average)}, nil
	}
	replicas, err := byTotal(t.specReplicas, value(to.Value), total, t.pods, t.tolerance)
	return replicas, autoscalingv2.MetricValueStatus{Value: milli(total)}, err
}

// withMetric adds the metric to an error, in the words of the event about all of an autoscaler's metrics.
func withMetric(spec autoscalingv2.MetricSpec, err error) error {
	switch {
	case spec.Resource != nil:
		return fmt.Errorf("failed to get %s resource metric value: %w", spec.Resource.Name, err)
	case spec.ContainerResource != nil:
		return fmt.Errorf("failed to get %s container metric value: %w", spec.ContainerResource.Container, err)
	case spec.Pods != nil:
		return fmt.Errorf("failed to get pods metric value: %w", err)
	case spec.Object != nil && spec.Object.Target.AverageValue != nil:
		return fmt.Errorf("failed to get object metric value: failed to get %s object metric: %w",
			spec.Object.Metric.Name, err)
	case spec.Object != nil:
		return fmt.Errorf("failed to get object metric value: %w", err)
	case spec.External != nil && spec.External.Target.AverageValue != nil:
		return fmt.Errorf("failed to get %[1]s external metric value: failed to get %[1]s external metric: %[2]w",
			spec.External.Metric.Name, err)
	case spec.External != nil:
		return fmt.Errorf("failed to get %[1]s external metric value: failed to get external metric %[1]s: %[2]w",
			spec.External.Metric.Name, err)
	}
	return err
}

func wrapMetricError(err error, format string, name corev1.ResourceName) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format, name, err)
}

func value(q *resource.Quantity) int64 {
	if q == nil {
		return 0
	}
	return q.MilliValue()
}

func milli(n int64) *resource.Quantity { return resource.NewMilliQuantity(n, resource.DecimalSI) }
