// Package endpoints publishes the addresses of the pods behind each Service: as EndpointSlices, and as Endpoints for
// clients that still read those. The proxy and the name server use them.
package endpoints

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
)

type controller struct {
	loop.Context
	loop.Loop
	services  corelisters.ServiceLister
	pods      corelisters.PodLister
	endpoints corelisters.EndpointsLister
	changes   lastChanges
}

// New returns the controller that manages the Endpoints of every Service with a selector.
func New(c loop.Context) loop.Controller {
	services, pods, endpoints := informers.Services(c.Informers), informers.Pods(c.Informers), informers.Endpoints(
		c.Informers,
	)
	e := &controller{Context: c, services: services.Lister(), pods: pods.Lister(), endpoints: endpoints.Lister()}
	e.Loop = loop.Loop{Name: "endpoints", QueueMetricName: "endpoint", Context: c, Sync: e.sync,
		Synced: []cache.InformerSynced{
			services.Informer().HasSynced, pods.Informer().HasSynced, endpoints.Informer().HasSynced}}
	enqueueOnChange(c, services.Informer(), pods.Informer(), e.Add)
	c.On(endpoints.Informer(), e.Add)
	return e
}

// enqueueOnChange calls wake with every Service that changed or whose pods changed.
func enqueueOnChange(c loop.Context, services, pods cache.SharedIndexInformer, wake func(obj any)) {
	c.On(services, wake)
	all := indexSelectors(services)
	c.OnChange(pods, func(old, obj any) {
		before, _ := old.(*corev1.Pod)
		after, _ := obj.(*corev1.Pod)
		if before != nil && after != nil && sameForServices(before, after) {
			return
		}
		wakeSelecting := func(pod *corev1.Pod) {
			forEachSelecting(all, pod.Namespace, pod.Labels, func(s *corev1.Service) { wake(s) })
		}
		if after != nil {
			wakeSelecting(after)
		}
		if before != nil && (after == nil || !maps.Equal(before.Labels, after.Labels)) {
			wakeSelecting(before)
		}
	})
}

// sameForServices reports whether two states of a pod yield the same endpoint.
func sameForServices(a, b *corev1.Pod) bool {
	readyA, _ := loop.IsReady(a)
	readyB, _ := loop.IsReady(b)
	return readyA == readyB && a.Status.PodIP == b.Status.PodIP && slices.Equal(a.Status.PodIPs, b.Status.PodIPs) &&
		(a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil) && a.Spec.NodeName == b.Spec.NodeName &&
		isFinished(a) == isFinished(b) && maps.Equal(a.Labels, b.Labels)
}

func isFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func (c *controller) sync(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil
	}
	client := c.Client.CoreV1().Endpoints(namespace)
	service, err := c.services.Services(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		c.changes.delete(key)
		existing, err := c.endpoints.Endpoints(namespace).Get(name)
		if err != nil || existing.Labels[managedLabel] != managedValue {
			return nil // already deleted, or managed by another controller
		}
		// Ask the API server before deleting: a Service that the cache does not show yet may already have clients.
		if _, err := c.Client.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{}); !loop.IsAbsent(err,
			"services", name) {
			return err
		}
		if err := client.Delete(ctx, name, loop.IfUnchanged(existing)); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	} else if err != nil {
		return err
	}
	if len(service.Spec.Selector) == 0 || service.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	pods, err := c.pods.Pods(namespace).List(labels.SelectorFromSet(service.Spec.Selector))
	if err != nil {
		return err
	}
	when, seen := c.changes.since(key, service, pods)
	want := newEndpoints(service, pods)
	current, err := c.endpoints.Endpoints(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		setTriggerTime(&want.ObjectMeta, when)
		_, err = client.Create(ctx, want, metav1.CreateOptions{})
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || apierrors.IsAlreadyExists(err) {
			return nil // an existing object is not in the cache yet; its event will queue the service again
		} else if err != nil {
			c.Events.Eventf(want, corev1.EventTypeWarning, "FailedToCreateEndpoint", "Failed to create endpoint for "+
				"service %v/%v: %v", namespace, name, err)
			return fmt.Errorf("create Endpoints %s: %w", key, err)
		}
	} else if err != nil {
		return err
	} else if !equalEndpoints(current, want) {
		updated := current.DeepCopy()
		updated.Labels, updated.Subsets = want.Labels, want.Subsets
		delete(updated.Annotations, corev1.EndpointsOverCapacity)
		for k, v := range want.Annotations {
			metav1.SetMetaDataAnnotation(&updated.ObjectMeta, k, v)
		}
		setTriggerTime(&updated.ObjectMeta, when)
		if _, err = client.Update(ctx, updated, metav1.UpdateOptions{}); err != nil {
			if !apierrors.IsConflict(err) {
				c.Events.Eventf(updated, corev1.EventTypeWarning, "FailedToUpdateEndpoint", "Failed to update "+
					"endpoint %v/%v: %v", namespace, name, err)
			}
			return fmt.Errorf("update Endpoints %s: %w", key, err)
		}
	}
	c.changes.record(key, seen)
	return nil
}

// newEndpoints returns the Endpoints of a service with these pods.
func newEndpoints(service *corev1.Service, pods []*corev1.Pod) *corev1.Endpoints {
	e := &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Namespace: service.Namespace, Name: service.Name, Labels: map[string]string{}},
	}
	maps.Copy(e.Labels, service.Labels)
	e.Labels[managedLabel] = managedValue
	labelHeadless(e.Labels, service)
	subsets, cut := truncate(Subsets(service, pods), maxAddresses)
	e.Subsets = subsets
	if cut {
		e.Annotations = map[string]string{corev1.EndpointsOverCapacity: "truncated"}
	}
	return e
}

// labelHeadless sets or removes the label by which the proxy leaves out services without a cluster IP.
func labelHeadless(labels map[string]string, service *corev1.Service) {
	delete(labels, corev1.IsHeadlessService)
	if service.Spec.ClusterIP == corev1.ClusterIPNone || service.Spec.ClusterIP == "" {
		labels[corev1.IsHeadlessService] = ""
	}
}

// equalEndpoints reports whether have already equals want in everything that this controller manages.
func equalEndpoints(current, want *corev1.Endpoints) bool {
	return apiequality.Semantic.DeepEqual(current.Subsets, want.Subsets) &&
		apiequality.Semantic.DeepEqual(current.Labels, want.Labels) &&
		current.Annotations[corev1.EndpointsOverCapacity] == want.Annotations[corev1.EndpointsOverCapacity]
}

// The label that marks Endpoints of this controller, in contrast to those that users created. It is upstream's.
const (
	managedLabel = "endpoints.kubernetes.io/managed-by"
	managedValue = "endpoint-controller"
)
