// Package mirroring copies Endpoints that users write, for Services without a selector, into EndpointSlices. The proxy
// and the name server read only EndpointSlices. Package endpoints manages the slices of Services with a selector.
package mirroring

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/endpoints"
	"clusterctl/daemons/controllers/loop"
)

type controller struct {
	loop.Context
	loop.Loop
	services  corelisters.ServiceLister
	endpoints corelisters.EndpointsLister
	slices    discoverylisters.EndpointSliceLister
	expect    loop.Expectations
	counts    counts
}

// New returns the controller that mirrors Endpoints.
func New(c loop.Context) loop.Controller {
	services, all := informers.Services(c.Informers), informers.Endpoints(c.Informers)
	slices := informers.EndpointSlices(c.Informers)
	m := &controller{
		Context:   c,
		services:  services.Lister(),
		endpoints: all.Lister(),
		slices:    slices.Lister(),
		expect:    loop.Expectations{Now: c.Now},
	}
	m.counts = newCounts(c, m.slices)
	m.Loop = loop.Loop{
		Name:            "endpointslice-mirroring",
		QueueMetricName: "endpoint_slice_mirroring",
		Context:         c,
		Sync:            m.sync,
		Synced: []cache.InformerSynced{
			services.Informer().HasSynced, all.Informer().HasSynced, slices.Informer().HasSynced},
	}
	c.OnChange(services.Informer(), func(old, obj any) {
		before, _ := old.(*corev1.Service)
		after, _ := obj.(*corev1.Service)
		if hasOwnSlices(before) != hasOwnSlices(after) || (before == nil) != (after == nil) {
			m.Add(newestState(after, before))
		}
	})
	c.OnChange(all.Informer(), func(old, obj any) {
		before, _ := old.(*corev1.Endpoints)
		after, _ := obj.(*corev1.Endpoints)
		if isMirrorable(before) || isMirrorable(after) {
			m.Add(newestState(after, before))
		}
	})
	endpoints.EnqueueOnSlices(c, slices.Informer(), discoveryv1.LabelServiceName, managedBy, &m.expect, m.Queue().Add)
	return m
}

func newestState[T any](after, before *T) any {
	if after != nil {
		return after
	}
	return before
}

// hasOwnSlices reports whether a Service's slices are not mirrored: it has a selector, or it is an ExternalName.
func hasOwnSlices(s *corev1.Service) bool {
	return s != nil && (s.Spec.Selector != nil || s.Spec.Type == corev1.ServiceTypeExternalName)
}

// leaderAnnotation is where leader election once stored its lock.
const leaderAnnotation = "control-plane.alpha.kubernetes.io/leader"

// isMirrorable reports whether Endpoints should be mirrored, considering only the Endpoints object. Locks of leader
// election are not mirrored, since they change every few seconds.
func isMirrorable(e *corev1.Endpoints) bool {
	if e == nil || e.Labels[discoveryv1.LabelSkipMirror] == "true" {
		return false
	}
	_, lock := e.Annotations[leaderAnnotation]
	return !lock
}

func (m *controller) sync(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil
	}
	if !m.expect.IsMet(key) {
		return nil // the cache does not show one of our slices yet; its event queues the key again
	}
	start := m.Now()
	defer func() { m.counts.observeSync(m.Now().Sub(start)) }()
	existing, err := m.slices.EndpointSlices(namespace).List(labels.SelectorFromSet(labels.Set{
		discoveryv1.LabelServiceName: name, discoveryv1.LabelManagedBy: managedBy}))
	if err != nil {
		return err
	}
	from, mirrored, err := m.source(ctx, namespace, name, len(existing) > 0)
	if err != nil {
		return err
	}
	if !mirrored {
		return m.write(ctx, key, Mirrored{Changes: endpoints.Changes{Delete: liveSlices(existing)}}, existing)
	}
	mirror := Mirror(from, existing)
	if from.DeletionTimestamp != nil {
		mirror.Create = nil
	}
	if mirror.Invalid > 0 {
		m.Events.Eventf(from, corev1.EventTypeWarning, "InvalidIPAddress",
			"Skipped %d invalid IP addresses when mirroring to EndpointSlices", mirror.Invalid)
	}
	if mirror.Skipped > mirror.Invalid {
		m.Events.Eventf(from, corev1.EventTypeWarning, "TooManyAddressesToMirror",
			"A max of %d addresses can be mirrored to EndpointSlices per Endpoints subset. %d addresses were skipped",
			maxPerSubset, mirror.Skipped)
	}
	return m.write(ctx, key, mirror, existing)
}

func (m *controller) write(
	ctx context.Context,
	key string,
	mirror Mirrored,
	existing []*discoveryv1.EndpointSlice,
) error {
	if err := mirror.Write(ctx, m.Client, &m.expect, key); err != nil {
		return err
	}
	m.counts.observeWrites(mirror, existing)
	return nil
}

// source returns the Endpoints of a name, and whether they should be mirrored. If certain, it confirms with the API
// server that the Endpoints or their Service are missing: slices are deleted then, and the cache may be behind.
func (m *controller) source(
	ctx context.Context,
	namespace, name string,
	certain bool,
) (*corev1.Endpoints, bool, error) {
	e, err := m.endpoints.Endpoints(namespace).Get(name)
	if apierrors.IsNotFound(err) && certain {
		e, err = m.Client.CoreV1().Endpoints(namespace).Get(ctx, name, metav1.GetOptions{})
	}
	if loop.IsAbsent(err, "endpoints", name) {
		return nil, false, nil
	} else if err != nil {
		return nil, false, fmt.Errorf("read Endpoints %s/%s: %w", namespace, name, err)
	}
	if !isMirrorable(e) {
		return nil, false, nil
	}
	service, err := m.services.Services(namespace).Get(name)
	if apierrors.IsNotFound(err) && certain {
		service, err = m.Client.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
	}
	if loop.IsAbsent(err, "services", name) {
		return nil, false, nil
	} else if err != nil {
		return nil, false, fmt.Errorf("read Service %s/%s: %w", namespace, name, err)
	}
	return e, !hasOwnSlices(service), nil
}
