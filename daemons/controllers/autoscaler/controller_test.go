package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
	corelisters "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"clusterctl/daemons/controllers/loop"
)

// staticMapper is a mapper that Reset does not change.
type staticMapper struct{ meta.RESTMapper }

func (staticMapper) Reset() {}

// newScaledController returns a controller with a Deployment web that has the given scale, and the recorder of its
// events. Writing a scale fails with err.
func newScaledController(t *testing.T, replicas int64, selector string, err error) (*controller, *record.FakeRecorder) {
	t.Helper()
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("Deployment"), meta.RESTScopeNamespace)
	client := dynamicfake.NewSimpleDynamicClient(scheme.Scheme)
	client.PrependReactor("get", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "autoscaling/v1", "kind": "Scale",
			"metadata": map[string]any{"namespace": "n", "name": "web"},
			"spec": map[string]any{
				"replicas": replicas,
			}, "status": map[string]any{"replicas": replicas, "selector": selector}}}, nil
	})
	client.PrependReactor("update", "deployments", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return true, a.(clienttesting.UpdateAction).GetObject(), err
	})
	events := record.NewFakeRecorder(10)
	c := loop.Context{Dynamic: client, Events: events}
	return &controller{
		Context: c,
		mapper:  staticMapper{mapper},
		states:  map[string]*autoscalerState{},
		metrics: fakeMetrics{},
		counts:  newCounts(c),
		pods: corelisters.NewPodLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})),
	}, events
}

func recordedEvents(events *record.FakeRecorder) (out []string) {
	for len(events.Events) > 0 {
		out = append(out, <-events.Events)
	}
	return out
}

func TestFailuresAreReportedInConditionsAndEvents(t *testing.T) {
	for name, c := range map[string]struct {
		hpa      *autoscalingv2.HorizontalPodAutoscaler
		replicas int64
		selector string
		err      error // of writing the scale
		message  string
		events   []string
	}{
		"nothing is measured": {hpa: autoscaler(1, 5, cpu(50)), replicas: 3, selector: "a=b",
			message: "the HPA was unable to compute the replica count: failed to get cpu utilization: unable to get " +
				"metrics for resource cpu: no metrics returned from resource metrics API",
			events: []string{"Warning FailedGetResourceMetric failed to get cpu utilization: unable to get metrics " +
				"for resource cpu: no metrics returned from resource metrics API",
				"Warning FailedComputeMetricsReplicas invalid metrics (1 invalid out of 1), first error is: failed " +
					"to get cpu resource metric value: failed to get cpu utilization: " +
					"unable to get metrics for resource cpu: no metrics returned from resource metrics API"}},
		"the target has no selector": {hpa: autoscaler(1, 5, cpu(50)), replicas: 3,
			message: "the HPA target's scale is " +
				"missing a selector",
			events: []string{"Warning SelectorRequired selector is required", "Warning FailedComputeMetricsReplicas " +
				"selector is required"}},
		"the target cannot be scaled": {hpa: autoscaler(1, 2, cpu(50)), replicas: 3, selector: "a=b",
			err: errors.New("no"),
			events: []string{"Warning FailedRescale New size: 2; reason: Current number of replicas above " +
				"Spec.MaxReplicas; error: no"}},
	} {
		t.Run(name, func(t *testing.T) {
			a, events := newScaledController(t, c.replicas, c.selector, c.err)
			c.hpa.ObjectMeta = metav1.ObjectMeta{Namespace: "n", Name: "h"}
			c.hpa.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{
				APIVersion: "apps/v1",
				Kind:       "Deployment",
				Name:       "web",
			}
			c.hpa.Status.DesiredReplicas = 4 // as last computed
			if err := a.reconcile(context.Background(), "n/h", c.hpa); err == nil {
				t.Error("it did not fail")
			}
			if s := c.hpa.Status; s.CurrentReplicas != int32(c.replicas) || s.DesiredReplicas != 4 {
				t.Errorf("%d current, %d desired; want %d and 4", s.CurrentReplicas, s.DesiredReplicas, c.replicas)
			}
			if got := recordedEvents(events); !slices.Equal(got, c.events) {
				t.Errorf("the events are\n%q, want\n%q", got, c.events)
			}
			for _, got := range c.hpa.Status.Conditions {
				if got.Type == autoscalingv2.ScalingActive &&
					(got.Status != corev1.ConditionFalse || got.Message != c.message) {
					t.Errorf("%s %q, want %q", got.Status, got.Message, c.message)
				}
			}
		})
	}
}

func TestErrorsNameTheMetric(t *testing.T) {
	for want, spec := range map[string]autoscalingv2.MetricSpec{
		"failed to get c container metric value: failed to get cpu utilization: unable to get metrics for resource " +
			"cpu: no metrics returned from resource metrics API": inContainer(50),
		"failed to get pods metric value: unable to get metric hits: no metrics returned from resource metrics " +
			"API": perPod("1"),
		"failed to get object metric value: unable to get metric hits: Ingress on n i/no metrics returned from " +
			"external metrics API": object(total("1")),
		"failed to get queue external metric value: failed to get external metric queue: unable to get external " +
			"metric n/queue/<none>: no metrics returned from external metrics API": external(total("1")),
		"failed to get queue external metric value: failed to get queue external metric: unable to get external " +
			"metric n/queue/<none>: no metrics returned from external metrics API": external(average("1")),
		`unknown metric source type "Moon"`: {Type: "Moon"},
	} {
		goal := target{
			namespace:    "n",
			specReplicas: 2,
			tolerance:    usualTolerance,
			now:          epoch,
			objectPath:   func(autoscalingv2.CrossVersionObjectReference) (string, error) { return "i", nil },
		}
		o := Decide(t.Context(), autoscaler(1, 5, spec), goal, fakeMetrics{}, &History{}, &conditions{now: epoch})
		if want = "invalid metrics (1 invalid out of 1), first error is: " + want; fmt.Sprint(o.Err) != want {
			t.Errorf("%v\nwant %s", o.Err, want)
		}
	}
}
