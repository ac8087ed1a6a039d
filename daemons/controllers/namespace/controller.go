// Package namespace empties namespaces that are being deleted, kind by kind, says in
// their status what is left, and lets them go when nothing is.
package namespace

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/controllers/loop"
)

type controller struct {
	loop.Context
	loop.Loop
	namespaces corelisters.NamespaceLister
}

// New returns the controller.
func New(c loop.Context) loop.Controller {
	namespaces := c.Informers.Core().V1().Namespaces()
	n := &controller{Context: c, namespaces: namespaces.Lister()}
	n.Loop = loop.Loop{Name: "namespace", Log: c.Log, Sync: n.sync, Workers: 10, Synced: []cache.InformerSynced{namespaces.Informer().HasSynced}}
	loop.OnChange(namespaces.Informer(), func(_, obj any) {
		if obj != nil && obj.(*corev1.Namespace).DeletionTimestamp != nil {
			n.Add(obj)
		}
	})
	return n
}

// remains is what a look at a namespace found left in it.
type remains struct {
	objects    map[string]int // by resource
	finalizers map[string]int
	grace      int64 // longest grace period among pods on their way out, seconds
	failures   []string
	discovery  error
}

func (n *controller) sync(ctx context.Context, name string) error {
	namespace, err := n.namespaces.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	if namespace.DeletionTimestamp == nil || !slices.Contains(namespace.Spec.Finalizers, corev1.FinalizerKubernetes) {
		return nil
	}
	left := n.empty(ctx, name)
	if err := n.writeStatus(ctx, namespace, left); err != nil {
		return err
	}
	if left.discovery != nil || len(left.failures) > 0 {
		return fmt.Errorf("empty namespace %s: %v", name, strings.Join(left.failures, "; "))
	}
	if len(left.objects) > 0 {
		wait := time.Second
		if left.grace > 0 {
			wait = time.Duration(left.grace/2+1) * time.Second
		}
		n.AddAfter(name, min(wait, 5*time.Second))
		return nil
	}
	final, err := n.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	if final.UID != namespace.UID {
		return nil
	}
	final.Spec.Finalizers = slices.DeleteFunc(final.Spec.Finalizers, func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
	if _, err := n.Client.CoreV1().Namespaces().Finalize(ctx, final, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("let namespace %s go: %w", name, err)
	}
	return nil
}

// empty deletes everything in a namespace and looks at what is left.
func (n *controller) empty(ctx context.Context, name string) remains {
	left := remains{objects: map[string]int{}, finalizers: map[string]int{}}
	lists, err := n.Client.Discovery().ServerPreferredNamespacedResources()
	if err != nil {
		left.discovery = err
		left.failures = append(left.failures, err.Error())
	}
	background := metav1.DeletePropagationBackground
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "delete"}}, lists) {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for _, resource := range list.APIResources {
			client := n.Metadata.Resource(gv.WithResource(resource.Name)).Namespace(name)
			var err error
			if slices.Contains(resource.Verbs, "deletecollection") {
				err = client.DeleteCollection(ctx, metav1.DeleteOptions{PropagationPolicy: &background}, metav1.ListOptions{})
			}
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsMethodNotSupported(err) {
				left.failures = append(left.failures, fmt.Sprintf("%s: %v", resource.Name, err))
				continue
			}
			n.look(ctx, &left, gv.WithResource(resource.Name), name)
		}
	}
	return left
}

func (n *controller) look(ctx context.Context, left *remains, resource schema.GroupVersionResource, name string) {
	client := n.Metadata.Resource(resource).Namespace(name)
	list, err := client.List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		return
	} else if err != nil {
		left.failures = append(left.failures, fmt.Sprintf("%s: %v", resource.Resource, err))
		return
	}
	key := resource.GroupResource().String()
	for i := range list.Items {
		item := &list.Items[i]
		left.objects[key]++
		for _, f := range item.Finalizers {
			left.finalizers[f]++
		}
		if s := item.DeletionGracePeriodSeconds; s != nil && resource.Resource == "pods" {
			left.grace = max(left.grace, *s)
		}
	}
}

func (n *controller) writeStatus(ctx context.Context, namespace *corev1.Namespace, left remains) error {
	updated := namespace.DeepCopy()
	updated.Status.Phase = corev1.NamespaceTerminating
	now := n.Now()
	report := func(kind corev1.NamespaceConditionType, bad bool, badReason, badMessage, goodReason, goodMessage string) {
		c := corev1.NamespaceCondition{Type: kind, Status: corev1.ConditionFalse, Reason: goodReason, Message: goodMessage, LastTransitionTime: metav1.NewTime(now)}
		if bad {
			c.Status, c.Reason, c.Message = corev1.ConditionTrue, badReason, badMessage
		}
		i := slices.IndexFunc(updated.Status.Conditions, func(o corev1.NamespaceCondition) bool { return o.Type == kind })
		switch {
		case i < 0:
			updated.Status.Conditions = append(updated.Status.Conditions, c)
		case updated.Status.Conditions[i].Status != c.Status || updated.Status.Conditions[i].Message != c.Message:
			if updated.Status.Conditions[i].Status == c.Status {
				c.LastTransitionTime = updated.Status.Conditions[i].LastTransitionTime
			}
			updated.Status.Conditions[i] = c
		}
	}
	var discoveryText string
	if left.discovery != nil {
		discoveryText = left.discovery.Error()
	}
	report(corev1.NamespaceDeletionDiscoveryFailure, left.discovery != nil, "DiscoveryFailed", "Discovery failed for some groups: "+discoveryText,
		"ResourcesDiscovered", "All resources successfully discovered")
	report(corev1.NamespaceDeletionContentFailure, len(left.failures) > 0 && left.discovery == nil, "ContentDeletionFailed",
		"Failed to delete all resource types: "+strings.Join(left.failures, ", "), "ContentDeleted", "All content successfully deleted, may be waiting on finalization")
	report(corev1.NamespaceContentRemaining, len(left.objects) > 0, "SomeResourcesRemain",
		"Some resources are remaining: "+counts(left.objects, "%s has %d resource instances"), "ContentRemoved", "All content successfully removed")
	report(corev1.NamespaceFinalizersRemaining, len(left.finalizers) > 0, "SomeFinalizersRemain",
		"Some content in the namespace has finalizers remaining: "+counts(left.finalizers, "%s in %d resource instances"), "ContentHasNoFinalizers", "All content-preserving finalizers finished")
	if apiequality.Semantic.DeepEqual(namespace.Status, updated.Status) {
		return nil
	}
	_, err := n.Client.CoreV1().Namespaces().UpdateStatus(ctx, updated, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func counts(m map[string]int, format string) string {
	var parts []string
	for k, v := range m {
		parts = append(parts, fmt.Sprintf(format, k, v))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
