package garbage

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
)

// ownerState is the state of an owner, as far as the graph and the API show.
type ownerState int

const (
	ownerLiving  ownerState = iota // or unknown: dependents must not be deleted
	ownerLeaving                   // in a foreground deletion that waits for its dependents
	ownerGone                      // the API server confirmed that it does not exist
)

// lookUpOwner looks up an owner in the graph, and in the API if the graph does not have it: a deletion based on a stale
// cache cannot be undone. It records owners that the API server reports as missing.
func (g *controller) lookUpOwner(ctx context.Context, o object, ref metav1.OwnerReference) (ownerState, error) {
	if existing, ok := g.graph.get(ref.UID); ok {
		switch {
		case existing.canOwn(o):
			return stateOf(existing), nil
		case o.GetNamespace() == "":
			g.reportInvalidNamespace(o, ref)
			return ownerLiving, nil
		}
		g.reportInvalidNamespace(o, ref) // the owner should not be in o's namespace; the lookup below confirms that
	}
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return ownerLiving, nil // an invalid version cannot be looked up
	}
	kind := gv.WithKind(ref.Kind).GroupKind()
	g.mu.Lock()
	resource, ok := g.byKind[kind]
	namespaced := g.isNamespaced[kind]
	if !ok {
		if g.unknownOwners[kind] == nil {
			g.unknownOwners[kind] = map[types.UID]bool{}
		}
		g.unknownOwners[kind][o.GetUID()] = true
	}
	g.mu.Unlock()
	if !ok {
		// A kind that is not served now may be served again. Its dependents are retained until then.
		return ownerLiving, nil
	}
	var client metadata.ResourceInterface = g.Metadata.Resource(resource)
	if namespaced {
		if o.GetNamespace() == "" {
			g.reportInvalidNamespace(o, ref)
			return ownerLiving, nil // the reference does not name the owner's namespace
		}
		client = g.Metadata.Resource(resource).Namespace(o.GetNamespace())
	}
	at := ownerLocation{resource: resource, name: ref.Name, uid: ref.UID}
	if namespaced {
		at.namespace = o.GetNamespace()
	}
	if g.absences.has(at) {
		return ownerGone, nil
	}
	live, err := client.Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && !isObjectNotFound(err):
		return ownerLiving, fmt.Errorf("look for owner %s %s: its kind is not served at present: %w", ref.Kind,
			ref.Name, err)
	case err != nil && !apierrors.IsNotFound(err):
		return ownerLiving, fmt.Errorf("look for owner %s %s: %w", ref.Kind, ref.Name, err)
	case err != nil, live.UID != ref.UID:
		g.absences.add(at)
		return ownerGone, nil
	}
	return stateOf(object{meta: live}), nil
}

func stateOf(o object) ownerState {
	if o.isDeleting() && o.hasFinalizer(metav1.FinalizerDeleteDependents) {
		return ownerLeaving
	}
	return ownerLiving
}

// isObjectNotFound reports whether a 404 means that the object does not exist. A 404 for the whole path, which an API
// server returns while a kind is not served, proves nothing about its objects.
func isObjectNotFound(notFound error) bool {
	status, ok := notFound.(apierrors.APIStatus)
	if !ok {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Name != "" &&
		!apierrors.HasStatusCause(notFound, metav1.CauseTypeUnexpectedServerResponse)
}

// reportInvalidNamespace records an event: o has an owner reference that is not valid in o's namespace.
func (g *controller) reportInvalidNamespace(o object, ref metav1.OwnerReference) {
	about := &corev1.ObjectReference{
		APIVersion: o.resource.GroupVersion().String(),
		Kind:       o.kind,
		Namespace:  o.GetNamespace(),
		Name:       o.GetName(),
		UID:        o.GetUID(),
	}
	g.Events.Eventf(about, corev1.EventTypeWarning, "OwnerRefInvalidNamespace",
		"ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q",
		ref.APIVersion, ref.Kind, o.GetNamespace(), ref.Name, ref.UID, o.GetNamespace())
}
