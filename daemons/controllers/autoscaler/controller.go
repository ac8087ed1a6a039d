// Package autoscaler implements HorizontalPodAutoscalers: it sets the replicas of any object with a scale subresource
// by metrics. It reads the metrics through the API and measures nothing itself.
package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"sync"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	autoscalinglisters "k8s.io/client-go/listers/autoscaling/v2"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/discovery"
)

type controller struct {
	loop.Context
	loop.Loop
	autoscalers autoscalinglisters.HorizontalPodAutoscalerLister
	pods        corelisters.PodLister
	mapper      meta.ResettableRESTMapper
	metrics     Metrics
	counts      counts

	mu     sync.Mutex
	states map[string]*autoscalerState // by the autoscaler's key
}

// autoscalerState holds what is recorded about one autoscaler. Only one worker at a time uses its history.
type autoscalerState struct {
	history  History
	selector labels.Selector
}

// New returns the controller.
func New(c loop.Context) loop.Controller {
	autoscalers, pods := informers.HorizontalPodAutoscalers(c.Informers), informers.Pods(c.Informers)
	a := &controller{Context: c, autoscalers: autoscalers.Lister(), pods: pods.Lister(),
		states:  map[string]*autoscalerState{},
		mapper:  discovery.NewMapper(c.Client.Discovery()),
		metrics: metricsClient{c.Client.Discovery().RESTClient()}}
	a.counts = newCounts(c)
	c.RegisterMetrics(autoscalerCollector{a.autoscalers})
	a.Loop = loop.Loop{
		Name:            "horizontal-pod-autoscaler",
		QueueMetricName: "horizontalpodautoscaler",
		Context:         c,
		Sync:            a.sync,
		Synced:          []cache.InformerSynced{autoscalers.Informer().HasSynced, pods.Informer().HasSynced},
	}
	c.OnChange(autoscalers.Informer(), func(old, obj any) {
		if old != nil && obj != nil &&
			apiequality.Semantic.DeepEqual(old.(*autoscalingv2.HorizontalPodAutoscaler).Spec,
				obj.(*autoscalingv2.HorizontalPodAutoscaler).Spec) {
			return // a change of the status alone needs no new measurement
		}
		if obj == nil {
			obj = old
		}
		a.Add(obj)
	})
	return a
}

func (a *controller) sync(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil
	}
	cached, err := a.autoscalers.HorizontalPodAutoscalers(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		a.mu.Lock()
		delete(a.states, key)
		a.mu.Unlock()
		return nil
	} else if err != nil {
		return err
	}
	if cached.DeletionTimestamp != nil {
		return nil
	}
	a.AddAfter(key, a.Config.HorizontalPodAutoscalerSyncPeriod)
	hpa := cached.DeepCopy()
	start, before := a.Now(), hpa.Status.LastScaleTime
	err = a.reconcile(ctx, key, hpa)
	a.counts.observeSync(hpa, before, err, a.Now().Sub(start))
	if err != nil {
		a.Context.Log.Debug("autoscaler", "key", key, "reason",
			err) // the status and an event report the error; the next sync follows soon
	}
	if apiequality.Semantic.DeepEqual(cached.Status, hpa.Status) {
		return nil
	}
	_, err = a.Client.AutoscalingV2().HorizontalPodAutoscalers(namespace).UpdateStatus(ctx, hpa, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// defaultTolerance returns the tolerance of autoscalers that set none.
func (a *controller) defaultTolerance() Tolerance {
	both := a.Config.HorizontalPodAutoscalerTolerance
	return Tolerance{
		Down: both, Up: both, Initialization: a.Config.HorizontalPodAutoscalerCPUInitializationPeriod,
		Readiness: a.Config.HorizontalPodAutoscalerInitialReadinessDelay,
	}
}

func (a *controller) reconcile(ctx context.Context, key string, hpa *autoscalingv2.HorizontalPodAutoscaler) error {
	now := a.Now()
	c := &conditions{list: hpa.Status.Conditions, now: now}
	defer func() { hpa.Status.Conditions = c.list }()
	ref := hpa.Spec.ScaleTargetRef
	resource, scale, err := a.scaleOf(ctx, hpa.Namespace, ref)
	if err != nil {
		a.Events.Event(hpa, corev1.EventTypeWarning, "FailedGetScale", err.Error())
		c.set(autoscalingv2.AbleToScale, corev1.ConditionFalse, "FailedGetScale",
			"the HPA controller was unable to get the target's current scale: %v", err)
		return err
	}
	c.set(autoscalingv2.AbleToScale, corev1.ConditionTrue, "SucceededGetScale",
		"the HPA controller was able to get the target's current scale")
	generation := hpa.Generation
	hpa.Status.ObservedGeneration = &generation
	t := target{
		namespace:      hpa.Namespace,
		specReplicas:   scale.Spec.Replicas,
		statusReplicas: scale.Status.Replicas,
		tolerance:      effectiveTolerance(a.defaultTolerance(), hpa.Spec.Behavior),
		downWindow:     a.Config.HorizontalPodAutoscalerDownscaleStabilization,
		now:            now,
		objectPath:     a.pathOf(hpa.Namespace),
	}
	t.observe = func(kind autoscalingv2.MetricSourceType) func(int32, *failure) {
		start := a.Now()
		return func(requests int32, f *failure) {
			a.counts.observeMetric(kind, scale.Spec.Replicas, requests, f, a.Now().Sub(start))
		}
	}
	memory := a.stateOf(key)
	t.findPods = func(t *target) error { return a.selectPods(key, memory, hpa, scale, t, c) }
	o := Decide(ctx, hpa, t, a.metrics, &memory.history, c)
	for _, e := range o.Events {
		a.Events.Event(hpa, e.Type, e.Reason, e.Message)
	}
	hpa.Status.CurrentReplicas = t.specReplicas
	if o.Metrics != nil {
		hpa.Status.CurrentMetrics = o.Metrics
	}
	if o.Err != nil {
		return o.Err // the desired number stays at the last one that was computed
	}
	if !o.Rescale {
		hpa.Status.DesiredReplicas = o.Replicas
		return nil
	}
	scale.Spec.Replicas = o.Replicas
	if err := a.rescale(ctx, resource, scale); err != nil {
		a.Events.Eventf(hpa, corev1.EventTypeWarning, "FailedRescale", "New size: %d; reason: %s; error: %v",
			o.Replicas, o.Reason, err)
		c.set(autoscalingv2.AbleToScale, corev1.ConditionFalse, "FailedUpdateScale",
			"the HPA controller was unable to update the target scale: %v", err)
		return fmt.Errorf("rescale %s %s/%s: %w", ref.Kind, hpa.Namespace, ref.Name, err)
	}
	c.set(autoscalingv2.AbleToScale, corev1.ConditionTrue, "SucceededRescale",
		"the HPA controller was able to update the target scale to %d", o.Replicas)
	c.setScaledToZero(hpa, t.specReplicas, o.Replicas)
	a.Events.Eventf(hpa, corev1.EventTypeNormal, "SuccessfulRescale", "New size: %d; reason: %s", o.Replicas, o.Reason)
	memory.history.Scaled = append(memory.history.Scaled, TimedValue{now, o.Replicas - t.specReplicas})
	hpa.Status.DesiredReplicas, hpa.Status.LastScaleTime = o.Replicas, &metav1.Time{Time: now}
	return nil
}

func (a *controller) stateOf(key string) *autoscalerState {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.states[key] == nil {
		a.states[key] = &autoscalerState{}
	}
	return a.states[key]
}

// selectPods finds the target's pods. It returns an error if another autoscaler selects one of them too.
func (a *controller) selectPods(
	key string,
	memory *autoscalerState,
	hpa *autoscalingv2.HorizontalPodAutoscaler,
	scale *autoscalingv1.Scale,
	t *target,
	c *conditions,
) error {
	if scale.Status.Selector == "" {
		err := errors.New("selector is required")
		a.Events.Event(hpa, corev1.EventTypeWarning, "SelectorRequired", err.Error())
		c.set(autoscalingv2.ScalingActive, corev1.ConditionFalse, "InvalidSelector",
			"the HPA target's scale is missing a selector")
		return err
	}
	selector, err := labels.Parse(scale.Status.Selector)
	if err != nil {
		err = fmt.Errorf("couldn't convert selector into a corresponding internal selector object: %w", err)
		a.Events.Event(hpa, corev1.EventTypeWarning, "InvalidSelector", err.Error())
		c.set(autoscalingv2.ScalingActive, corev1.ConditionFalse, "InvalidSelector", "%v", err)
		return err
	}
	t.selector = selector
	if t.pods, err = a.pods.Pods(hpa.Namespace).List(selector); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	memory.selector = selector
	for other, m := range a.states {
		if namespace, name, _ := cache.SplitMetaNamespaceKey(other); other == key || namespace != hpa.Namespace ||
			m.selector == nil {
			continue
		} else if _, err := a.autoscalers.HorizontalPodAutoscalers(namespace).Get(name); apierrors.IsNotFound(err) {
			continue
		}
		for _, pod := range t.pods {
			if m.selector.Matches(labels.Set(pod.Labels)) {
				err := fmt.Errorf("pods by selector %v are controlled by multiple HPAs: [%s %s]", scale.Status.Selector,
					key, other)
				a.Events.Event(hpa, corev1.EventTypeWarning, "AmbiguousSelector", err.Error())
				c.set(autoscalingv2.ScalingActive, corev1.ConditionFalse, "AmbiguousSelector", "%v", err)
				return err
			}
		}
	}
	return nil
}

// resourceOf returns the REST mapping of a kind. For an unknown kind it refreshes the mapper once, since the kind may
// be new.
func (a *controller) resourceOf(apiVersion, kind string) (*meta.RESTMapping, error) {
	version, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, specError{fmt.Errorf("invalid API version in scale target reference: %w", err)}
	}
	mapping, err := a.mapper.RESTMapping(schema.GroupKind{Group: version.Group, Kind: kind}, version.Version)
	if meta.IsNoMatchError(err) {
		a.mapper.Reset()
		mapping, err = a.mapper.RESTMapping(schema.GroupKind{Group: version.Group, Kind: kind}, version.Version)
	}
	if err != nil {
		return nil, fmt.Errorf("unable to determine resource for scale target reference: %w", err)
	}
	return mapping, nil
}

func (a *controller) scaleOf(
	ctx context.Context,
	namespace string,
	ref autoscalingv2.CrossVersionObjectReference,
) (schema.GroupVersionResource, *autoscalingv1.Scale, error) {
	mapping, err := a.resourceOf(ref.APIVersion, ref.Kind)
	if err != nil {
		return schema.GroupVersionResource{}, nil, err
	}
	got, err := a.Dynamic.Resource(mapping.Resource).
		Namespace(namespace).
		Get(ctx, ref.Name, metav1.GetOptions{}, "scale")
	if err != nil {
		return mapping.Resource, nil, err
	}
	var scale autoscalingv1.Scale
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(got.Object, &scale); err != nil {
		return mapping.Resource, nil, fmt.Errorf("read the scale of %s %s/%s: %w", ref.Kind, namespace, ref.Name, err)
	}
	return mapping.Resource, &scale, nil
}

// rescale writes a scale that was read before. If the scale has changed since, the write fails with a conflict and the
// sync is repeated.
func (a *controller) rescale(
	ctx context.Context,
	resource schema.GroupVersionResource,
	scale *autoscalingv1.Scale,
) error {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(scale)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: object}
	u.SetGroupVersionKind(autoscalingv1.SchemeGroupVersion.WithKind("Scale"))
	_, err = a.Dynamic.Resource(resource).Namespace(scale.Namespace).Update(ctx, u, metav1.UpdateOptions{}, "scale")
	return err
}

// pathOf returns a function that returns the path of an object in the custom metrics API.
func (a *controller) pathOf(namespace string) func(autoscalingv2.CrossVersionObjectReference) (string, error) {
	return func(ref autoscalingv2.CrossVersionObjectReference) (string, error) {
		if ref.Kind == "Namespace" && ref.APIVersion == "v1" {
			return "namespaces/" + namespace + "/metrics", nil
		}
		mapping, err := a.resourceOf(ref.APIVersion, ref.Kind)
		if err != nil {
			return "", err
		}
		at := mapping.Resource.GroupResource().String() + "/" + ref.Name
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			at = "namespaces/" + namespace + "/" + at
		}
		return at, nil
	}
}
