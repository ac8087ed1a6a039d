// Package namespace empties namespaces that are being deleted, kind by kind. It reports in their status what is left,
// and removes the finalizer when nothing is.
package namespace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/discovery"
)

type controller struct {
	loop.Context
	loop.Loop
	namespaces corelisters.NamespaceLister

	mu             sync.Mutex
	remainingKinds map[types.UID][]kind // by UID of a namespace that is being deleted: kinds with remaining objects
}

// New returns the controller.
func New(c loop.Context) loop.Controller {
	namespaces := informers.Namespaces(c.Informers)
	n := &controller{Context: c, namespaces: namespaces.Lister(), remainingKinds: map[types.UID][]kind{}}
	n.Loop = loop.Loop{
		Name:    "namespace",
		Context: c,
		Sync:    n.sync,
		Workers: 10,
		Synced:  []cache.InformerSynced{namespaces.Informer().HasSynced},
	}
	c.OnChange(namespaces.Informer(), func(old, obj any) {
		if obj == nil {
			n.recordRemaining(old.(*corev1.Namespace).UID, nil)
		} else if namespace := obj.(*corev1.Namespace); namespace.DeletionTimestamp != nil {
			n.Add(obj)
		}
	})
	return n
}

// remainder holds what is left in a namespace.
type remainder struct {
	objects    map[string]int // by resource
	finalizers map[string]int
	kinds      []kind // kinds with remaining objects
	failures   []string
	discovery  error
}

// recheckInterval is the time between two looks at objects that are being deleted.
const recheckInterval = 500 * time.Millisecond

func (n *controller) sync(ctx context.Context, name string) error {
	if _, err := n.namespaces.Get(name); apierrors.IsNotFound(err) {
		return nil
	}
	// Everything in the namespace is about to be deleted, so ask the API server: there may be a new namespace of the
	// same name by now.
	namespace, err := n.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	if namespace.DeletionTimestamp == nil || !slices.Contains(namespace.Spec.Finalizers, corev1.FinalizerKubernetes) {
		return nil
	}
	left := n.deleteContents(ctx, namespace)
	if err := n.writeStatus(ctx, namespace, left); err != nil {
		return err
	}
	if left.discovery != nil || len(left.failures) > 0 {
		return fmt.Errorf("empty namespace %s: %w", name, errors.Join(left.discovery,
			errors.New(strings.Join(left.failures, "; "))))
	}
	if len(left.objects) > 0 {
		n.AddAfter(name, recheckInterval)
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
	final.Spec.Finalizers = slices.DeleteFunc(final.Spec.Finalizers,
		func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
	if _, err := n.Client.CoreV1().Namespaces().Finalize(ctx, final, metav1.UpdateOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		return fmt.Errorf("let namespace %s go: %w", name, err)
	}
	return nil
}

// podKind are deleted before everything else. What protects them, such as network policies, and what they use stays
// until the last pod has ended.
var podKind = kind{corev1.SchemeGroupVersion.WithResource("pods"), true}

// deleteContents deletes everything in a namespace, pods first, and returns what is left. If a previous sync found only
// some kinds left, it looks at those alone. When they are gone, it looks at all kinds once more.
func (n *controller) deleteContents(ctx context.Context, namespace *corev1.Namespace) remainder {
	first := n.deleteKinds(ctx, namespace.Name, []kind{podKind})
	if len(first.failures) > 0 {
		first.failures[0] = fmt.Sprintf("failed to delete pods for namespace: %s, err: %s", namespace.Name,
			first.failures[0])
	}
	if len(first.objects) > 0 || len(first.failures) > 0 {
		return first
	}
	if waited := n.lastRemaining(namespace.UID); len(waited) > 0 {
		if left := n.deleteKinds(ctx, namespace.Name, waited); len(left.objects) > 0 || len(left.failures) > 0 {
			n.recordRemaining(namespace.UID, left.kinds)
			return left
		}
	}
	lists, err := n.Client.Discovery().ServerPreferredNamespacedResources()
	var all []kind
	for _, list := range discovery.WithVerbs(lists, "list", "delete") {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range list.APIResources {
			all = append(all, kind{gv.WithResource(r.Name), slices.Contains(r.Verbs, "deletecollection")})
		}
	}
	left := n.deleteKinds(ctx, namespace.Name, all)
	if err != nil {
		left.discovery = err
	}
	n.recordRemaining(namespace.UID, left.kinds)
	return left
}

// kind is a namespaced resource.
type kind struct {
	schema.GroupVersionResource
	canDeleteCollection bool // supports deletecollection
}

// maxConcurrentKinds is the maximum number of kinds of one namespace that are handled at once.
const maxConcurrentKinds = 4

func (n *controller) deleteKinds(ctx context.Context, name string, all []kind) remainder {
	left := remainder{objects: map[string]int{}, finalizers: map[string]int{}}
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(maxConcurrentKinds)
	for _, k := range all {
		g.Go(func() error {
			items, err := n.deleteKind(ctx, name, k)
			mu.Lock()
			defer mu.Unlock()
			left.add(k, items, err)
			return nil
		})
	}
	_ = g.Wait() // errors are in the remains
	slices.Sort(left.failures)
	return left
}

// deleteKind deletes the objects of one kind and returns those that are left. Most namespaces have no objects of most
// kinds, which costs one request.
func (n *controller) deleteKind(ctx context.Context, name string, k kind) ([]metav1.PartialObjectMetadata, error) {
	client := n.Metadata.Resource(k.GroupVersionResource).Namespace(name)
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	living := slices.DeleteFunc(slices.Clone(list.Items),
		func(o metav1.PartialObjectMetadata) bool { return o.DeletionTimestamp != nil })
	if len(living) == 0 {
		return list.Items, nil
	}
	background := metav1.DeletePropagationBackground
	options := metav1.DeleteOptions{PropagationPolicy: &background}
	if k.canDeleteCollection {
		err = client.DeleteCollection(ctx, options, metav1.ListOptions{})
	}
	if !k.canDeleteCollection || apierrors.IsMethodNotSupported(err) {
		for _, o := range living {
			if err = client.Delete(ctx, o.Name, options); err != nil && !apierrors.IsNotFound(err) {
				break
			}
			err = nil
		}
	}
	if err != nil {
		return list.Items, err
	}
	if list, err = client.List(ctx, metav1.ListOptions{}); err != nil {
		return nil, err
	}
	return list.Items, nil
}

// add records what is left of a kind.
func (r *remainder) add(k kind, items []metav1.PartialObjectMetadata, err error) {
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		return // the kind was removed, or cannot be listed
	}
	if err != nil {
		r.failures = append(r.failures, fmt.Sprintf("%s: %v", k.Resource, err))
	}
	if len(items) > 0 || err != nil {
		r.kinds = append(r.kinds, k)
	}
	for i := range items {
		r.objects[k.Resource+"."+k.Group]++ // kubectl's users know the core group as "pods."
		for _, f := range items[i].Finalizers {
			r.finalizers[f]++
		}
	}
}

// lastRemaining returns the kinds that were left in a namespace at the last sync.
func (n *controller) lastRemaining(uid types.UID) []kind {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.remainingKinds[uid]
}

func (n *controller) recordRemaining(uid types.UID, kinds []kind) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(kinds) == 0 {
		delete(n.remainingKinds, uid)
		return
	}
	n.remainingKinds[uid] = kinds
}

func (n *controller) writeStatus(ctx context.Context, namespace *corev1.Namespace, left remainder) error {
	updated := namespace.DeepCopy()
	updated.Status.Phase = corev1.NamespaceTerminating
	now := n.Now()
	report := func(kind corev1.NamespaceConditionType, bad bool, badReason, badMessage, goodReason,
		goodMessage string) {
		c := corev1.NamespaceCondition{
			Type:               kind,
			Status:             corev1.ConditionFalse,
			Reason:             goodReason,
			Message:            goodMessage,
			LastTransitionTime: metav1.NewTime(now),
		}
		if bad {
			c.Status, c.Reason, c.Message = corev1.ConditionTrue, badReason, badMessage
		}
		i := slices.IndexFunc(updated.Status.Conditions,
			func(o corev1.NamespaceCondition) bool { return o.Type == kind })
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
	report(corev1.NamespaceDeletionDiscoveryFailure, left.discovery != nil, "DiscoveryFailed", fmt.Sprintf(
		"Discovery failed for some groups, %d failing: %s", failedGroupCount(left.discovery), discoveryText),
		"ResourcesDiscovered", "All resources successfully discovered")
	// All group versions that are served can be parsed.
	report(corev1.NamespaceDeletionGVParsingFailure, false, "", "", "ParsedGroupVersions",
		"All legacy kube types successfully parsed")
	report(corev1.NamespaceDeletionContentFailure, len(left.failures) > 0, "ContentDeletionFailed", fmt.Sprintf(
		"Failed to delete all resource types, %d remaining: %s", len(left.failures), strings.Join(left.failures, ", ")),
		"ContentDeleted", "All content successfully deleted, may be waiting on finalization")
	report(corev1.NamespaceContentRemaining, len(left.objects) > 0, "SomeResourcesRemain",
		"Some resources are remaining: "+countText(left.objects, "%s has %d resource instances"), "ContentRemoved",
		"All content successfully removed")
	report(
		corev1.NamespaceFinalizersRemaining,
		len(left.finalizers) > 0,
		"SomeFinalizersRemain",
		"Some content in the namespace has finalizers remaining: "+countText(left.finalizers,
			"%s in %d resource instances"),
		"ContentHasNoFinalizers",
		"All content-preserving finalizers finished",
	)
	if apiequality.Semantic.DeepEqual(namespace.Status, updated.Status) {
		return nil
	}
	_, err := n.Client.CoreV1().Namespaces().UpdateStatus(ctx, updated, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// failedGroupCount returns for how many group versions discovery failed with err.
func failedGroupCount(err error) int {
	var groups *discovery.ErrGroupDiscoveryFailed
	if errors.As(err, &groups) {
		return len(groups.Groups)
	}
	return 1
}

func countText(m map[string]int, format string) string {
	var parts []string
	for k, v := range m {
		parts = append(parts, fmt.Sprintf(format, k, v))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
