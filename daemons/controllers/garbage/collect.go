package garbage

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
)

// sync does for one object what its state and its owners' call for.
func (g *controller) sync(ctx context.Context, uid types.UID) error {
	o := g.graph.get(uid)
	if o == nil {
		return nil
	}
	if o.deleting {
		switch {
		case o.has(metav1.FinalizerOrphanDependents):
			return g.orphan(ctx, o)
		case o.has(metav1.FinalizerDeleteDependents):
			return g.foreground(ctx, o)
		}
		return nil
	}
	if len(o.owners) == 0 {
		return nil
	}
	solid, dangling, waiting, err := g.sort(ctx, o)
	if err != nil {
		return err
	}
	switch {
	case len(solid) > 0:
		if len(dangling)+len(waiting) == 0 {
			return nil
		}
		// Somebody else still owns it: only the dead references go.
		return g.dropOwners(ctx, o, uidsOf(append(dangling, waiting...)))
	case len(waiting) > 0 && len(g.graph.dependentsOf(uid)) > 0:
		return g.delete(ctx, o, metav1.DeletePropagationForeground)
	}
	policy := metav1.DeletePropagationBackground
	switch {
	case o.has(metav1.FinalizerOrphanDependents):
		policy = metav1.DeletePropagationOrphan
	case o.has(metav1.FinalizerDeleteDependents):
		policy = metav1.DeletePropagationForeground
	}
	return g.delete(ctx, o, policy)
}

// sort tells owners that live from those that are gone and those that wait, in a
// foreground deletion, for o to go.
func (g *controller) sort(ctx context.Context, o *object) (solid, dangling, waiting []metav1.OwnerReference, err error) {
	for _, ref := range o.owners {
		deleting, foreground, exists, err := g.owner(ctx, o, ref)
		switch {
		case err != nil:
			return nil, nil, nil, err
		case !exists:
			dangling = append(dangling, ref)
		case deleting && foreground && o.blocks(ref.UID):
			waiting = append(waiting, ref)
		default:
			solid = append(solid, ref)
		}
	}
	return solid, dangling, waiting, nil
}

// owner looks an owner up in the graph, and at the API when the graph does not have
// it: deleting on a cache that is behind would be fatal.
func (g *controller) owner(ctx context.Context, o *object, ref metav1.OwnerReference) (deleting, foreground, exists bool, err error) {
	if known := g.graph.get(ref.UID); known != nil {
		if known.namespace != "" && known.namespace != o.namespace {
			return false, false, false, nil // owners live in the same namespace or in none
		}
		return known.deleting, known.has(metav1.FinalizerDeleteDependents), true, nil
	}
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return false, false, false, nil
	}
	kind := gv.WithKind(ref.Kind).GroupKind()
	g.mu.Lock()
	resource, known := g.byKind[kind]
	namespaced := g.scoped[kind]
	if !known {
		if g.missed[kind] == nil {
			g.missed[kind] = map[types.UID]bool{}
		}
		g.missed[kind][o.uid] = true
	}
	g.mu.Unlock()
	if !known {
		// A kind that is not served now may be served again: what it owns is kept until then.
		return false, false, true, nil
	}
	var client metadata.ResourceInterface = g.Metadata.Resource(resource)
	if namespaced {
		client = g.Metadata.Resource(resource).Namespace(o.namespace)
	}
	live, err := client.Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, false, false, nil
	} else if err != nil {
		return false, false, false, fmt.Errorf("look for owner %s %s: %w", ref.Kind, ref.Name, err)
	}
	if live.UID != ref.UID {
		return false, false, false, nil
	}
	return live.DeletionTimestamp != nil, slices.Contains(live.Finalizers, metav1.FinalizerDeleteDependents), true, nil
}

// foreground deletes what o owns, and lets o go when nothing that blocks it is left.
func (g *controller) foreground(ctx context.Context, o *object) error {
	blocked := false
	for _, d := range g.graph.dependentsOf(o.uid) {
		if d.blocks(o.uid) {
			blocked = true
			if !d.deleting {
				g.Queue().Add(string(d.uid))
			}
		}
	}
	if blocked {
		return nil
	}
	return g.dropFinalizer(ctx, o, metav1.FinalizerDeleteDependents)
}

// orphan takes o's reference from all that it owns, then lets o go.
func (g *controller) orphan(ctx context.Context, o *object) error {
	for _, d := range g.graph.dependentsOf(o.uid) {
		if err := g.dropOwners(ctx, d, []types.UID{o.uid}); err != nil {
			return err
		}
	}
	return g.dropFinalizer(ctx, o, metav1.FinalizerOrphanDependents)
}

func (g *controller) client(o *object) metadata.ResourceInterface {
	if o.namespace == "" {
		return g.Metadata.Resource(o.resource)
	}
	return g.Metadata.Resource(o.resource).Namespace(o.namespace)
}

func (g *controller) delete(ctx context.Context, o *object, policy metav1.DeletionPropagation) error {
	live, err := g.client(o).Get(ctx, o.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("look at %s %s/%s: %w", o.kind, o.namespace, o.name, err)
	}
	if live.UID != o.uid || !slices.EqualFunc(live.OwnerReferences, o.owners, sameOwner) {
		return nil // changed meanwhile: its event comes
	}
	err = g.client(o).Delete(ctx, o.name, metav1.DeleteOptions{PropagationPolicy: &policy,
		Preconditions: &metav1.Preconditions{UID: &o.uid, ResourceVersion: &live.ResourceVersion}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete %s %s/%s: %w", o.kind, o.namespace, o.name, err)
	}
	return nil
}

func (g *controller) dropOwners(ctx context.Context, o *object, gone []types.UID) error {
	return g.patch(ctx, o, func(m *metav1.PartialObjectMetadata) map[string]any {
		kept := slices.DeleteFunc(slices.Clone(m.OwnerReferences), func(r metav1.OwnerReference) bool { return slices.Contains(gone, r.UID) })
		if len(kept) == len(m.OwnerReferences) {
			return nil
		}
		return map[string]any{"ownerReferences": kept}
	})
}

func (g *controller) dropFinalizer(ctx context.Context, o *object, finalizer string) error {
	return g.patch(ctx, o, func(m *metav1.PartialObjectMetadata) map[string]any {
		kept := slices.DeleteFunc(slices.Clone(m.Finalizers), func(f string) bool { return f == finalizer })
		if len(kept) == len(m.Finalizers) {
			return nil
		}
		return map[string]any{"finalizers": kept}
	})
}

// patch changes an object's metadata, guarded by the version that change saw.
func (g *controller) patch(ctx context.Context, o *object, change func(*metav1.PartialObjectMetadata) map[string]any) error {
	live, err := g.client(o).Get(ctx, o.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("look at %s %s/%s: %w", o.kind, o.namespace, o.name, err)
	}
	if live.UID != o.uid {
		return nil
	}
	fields := change(live)
	if fields == nil {
		return nil
	}
	fields["resourceVersion"] = live.ResourceVersion
	text, err := json.Marshal(map[string]any{"metadata": fields})
	if err != nil {
		return err
	}
	_, err = g.client(o).Patch(ctx, o.name, types.MergePatchType, text, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("patch %s %s/%s: %w", o.kind, o.namespace, o.name, err)
	}
	return nil
}

func uidsOf(refs []metav1.OwnerReference) []types.UID {
	out := make([]types.UID, len(refs))
	for i, r := range refs {
		out[i] = r.UID
	}
	return out
}
