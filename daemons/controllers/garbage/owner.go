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

// standing is the state of an owner, as far as the graph and the API show.
type standing int

const (
	living  standing = iota // or unknown: dependents must not be deleted
	leaving                 // in a foreground deletion that waits for its dependents
	gone                    // the API server confirmed that it does not exist
)

// owner looks up an owner in the graph, and in the API if the graph does not have it: a deletion based on a stale cache
// cannot be undone. It records owners that the API server reports as missing.
func (g *controller) owner(ctx context.Context, o object, ref metav1.OwnerReference) (standing, error) {
	if there, known := g.graph.get(ref.UID); known {
		switch {
		case there.mayOwn(o):
			return standingOf(there), nil
		case o.GetNamespace() == "":
			g.tellMisplaced(o, ref)
			return living, nil
		}
		g.tellMisplaced(o, ref) // the owner should not be in o's namespace; the lookup below confirms that
	}
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return living, nil // an invalid version cannot be looked up
	}
	kind := gv.WithKind(ref.Kind).GroupKind()
	g.mu.Lock()
	resource, known := g.byKind[kind]
	namespaced := g.scoped[kind]
	if !known {
		if g.missed[kind] == nil {
			g.missed[kind] = map[types.UID]bool{}
		}
		g.missed[kind][o.GetUID()] = true
	}
	g.mu.Unlock()
	if !known {
		// A kind that is not served now may be served again. Its dependents are retained until then.
		return living, nil
	}
	var client metadata.ResourceInterface = g.Metadata.Resource(resource)
	if namespaced {
		if o.GetNamespace() == "" {
			g.tellMisplaced(o, ref)
			return living, nil // the reference does not name the owner's namespace
		}
		client = g.Metadata.Resource(resource).Namespace(o.GetNamespace())
	}
	at := place{resource: resource, name: ref.Name, uid: ref.UID}
	if namespaced {
		at.namespace = o.GetNamespace()
	}
	if g.absent.has(at) {
		return gone, nil
	}
	live, err := client.Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && !ofAnObject(err):
		return living, fmt.Errorf(
			"look for owner %s %s: its kind is not served at present: %w",
			ref.Kind,
			ref.Name,
			err,
		)
	case err != nil && !apierrors.IsNotFound(err):
		return living, fmt.Errorf("look for owner %s %s: %w", ref.Kind, ref.Name, err)
	case err != nil, live.UID != ref.UID:
		g.absent.add(at)
		return gone, nil
	}
	return standingOf(object{meta: live}), nil
}

func standingOf(o object) standing {
	if o.deleting() && o.has(metav1.FinalizerDeleteDependents) {
		return leaving
	}
	return living
}

// ofAnObject reports whether a 404 means that the object does not exist. A 404 for the whole path, which an API server
// returns while a kind is not served, proves nothing about its objects.
func ofAnObject(notFound error) bool {
	status, ok := notFound.(apierrors.APIStatus)
	if !ok {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Name != "" &&
		!apierrors.HasStatusCause(notFound, metav1.CauseTypeUnexpectedServerResponse)
}

// tellMisplaced records an event: o has an owner reference that is not valid in o's namespace.
func (g *controller) tellMisplaced(o object, ref metav1.OwnerReference) {
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
