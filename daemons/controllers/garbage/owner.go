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

// standing is how an owner is, as far as can be told.
type standing int

const (
	living  standing = iota // or it cannot be told: nothing may be deleted for it
	leaving                 // being deleted in the foreground: it waits for what it owns
	gone                    // the place where it would be was looked at, and it is not there
)

// owner looks an owner up in the graph, and at the API when the graph does not have it: deleting on a cache that is
// behind would be fatal. What the API said of an owner that is not there is remembered.
func (g *controller) owner(ctx context.Context, o object, ref metav1.OwnerReference) (standing, error) {
	if there, known := g.graph.get(ref.UID); known {
		switch {
		case there.mayOwn(o):
			return standingOf(there), nil
		case o.GetNamespace() == "":
			g.tellMisplaced(o, ref)
			return living, nil
		}
		g.tellMisplaced(o, ref) // in o's namespace it should not be, which the server is asked to confirm
	}
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return living, nil // no place to look at
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
		// A kind that is not served now may be served again: what it owns is kept until then.
		return living, nil
	}
	var client metadata.ResourceInterface = g.Metadata.Resource(resource)
	if namespaced {
		if o.GetNamespace() == "" {
			g.tellMisplaced(o, ref)
			return living, nil // in which namespace it would be, the reference does not say
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

// ofAnObject tells "there is no such object" from "there is no such path", which an API
// server answers while a kind is not served, and which says nothing of its objects.
func ofAnObject(notFound error) bool {
	status, ok := notFound.(apierrors.APIStatus)
	if !ok {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Name != "" &&
		!apierrors.HasStatusCause(notFound, metav1.CauseTypeUnexpectedServerResponse)
}

// tellMisplaced says in an event that o names an owner that it cannot have where it is.
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
