package garbage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
)

// sync acts on the state of one object and its owners: it deletes the object, or removes finalizers or owner
// references.
func (g *controller) sync(ctx context.Context, uid types.UID) error {
	o, ok := g.graph.get(uid)
	if !ok {
		return nil
	}
	if o.isDeleting() {
		if (o.hasFinalizer(metav1.FinalizerOrphanDependents) || o.hasFinalizer(metav1.FinalizerDeleteDependents)) &&
			!g.isSynced() {
			// Dependents of a kind that has not been listed yet are unknown. They would not be waited for, or would
			// keep their reference.
			return fmt.Errorf("remove the finalizer of %s: some kinds have not been listed yet", o)
		}
		switch {
		case o.hasFinalizer(metav1.FinalizerOrphanDependents):
			return g.orphanDependents(ctx, o)
		case o.hasFinalizer(metav1.FinalizerDeleteDependents):
			return g.deleteDependents(ctx, o)
		}
		return nil
	}
	if len(o.GetOwnerReferences()) == 0 {
		return nil
	}
	solid, dangling, waiting, err := g.sortOwners(ctx, o)
	if err != nil {
		return err
	}
	switch {
	case len(solid) > 0:
		if len(dangling)+len(waiting) == 0 {
			return nil
		}
		// Another owner still exists: remove only the references to the other ones.
		return g.removeOwners(ctx, o, uidsOf(append(dangling, waiting...)))
	case len(waiting) > 0 && g.graph.hasDependents(uid):
		return g.deleteObject(ctx, o, metav1.DeletePropagationForeground)
	}
	policy := metav1.DeletePropagationBackground
	switch {
	case o.hasFinalizer(metav1.FinalizerOrphanDependents):
		policy = metav1.DeletePropagationOrphan
	case o.hasFinalizer(metav1.FinalizerDeleteDependents):
		policy = metav1.DeletePropagationForeground
	}
	return g.deleteObject(ctx, o, policy)
}

// sortOwners divides an object's owner references: solid owners exist, dangling owners are gone, and waiting owners are
// in a foreground deletion that waits for o.
func (g *controller) sortOwners(ctx context.Context, o object) (solid, dangling, waiting []metav1.OwnerReference,
	err error) {
	for _, ref := range o.GetOwnerReferences() {
		found, err := g.lookUpOwner(ctx, o, ref)
		switch {
		case err != nil:
			return nil, nil, nil, err
		case found == ownerGone:
			dangling = append(dangling, ref)
		case found == ownerLeaving && o.isBlocking(ref.UID):
			waiting = append(waiting, ref)
		default:
			solid = append(solid, ref)
		}
	}
	return solid, dangling, waiting, nil
}

// deleteDependents deletes the dependents of o. When no dependent that blocks o is left, it removes the finalizer from
// o.
func (g *controller) deleteDependents(ctx context.Context, o object) error {
	blocked := false
	for _, d := range g.graph.dependentsOf(o.GetUID()) {
		switch {
		case !d.isBlocking(o.GetUID()):
			continue
		case !o.canOwn(d):
			// d cannot belong to o, so it is never deleted as a dependent of o, and waiting for it would never end. A
			// dependent in another namespace is collected on its own.
		case g.graph.isBlockedBy(d.GetUID(), o.GetUID()):
			// Each waits for the other, so o stops waiting for d. The event of that change wakes both.
			blocked = true
			if err := g.unblockOwner(ctx, d, o.GetUID()); err != nil {
				return err
			}
		default:
			blocked = true
			if !d.isDeleting() {
				g.Queue().Add(string(d.GetUID()))
			}
		}
	}
	if blocked {
		return nil
	}
	return g.removeFinalizer(ctx, o, metav1.FinalizerDeleteDependents)
}

// unblockOwner lets an owner be deleted although its dependent o still exists.
func (g *controller) unblockOwner(ctx context.Context, o object, owner types.UID) error {
	return g.patch(ctx, o, func(now object) map[string]any {
		refs, changed := slices.Clone(now.GetOwnerReferences()), false
		for i := range refs {
			if refs[i].UID == owner && refs[i].BlockOwnerDeletion != nil && *refs[i].BlockOwnerDeletion {
				refs[i].BlockOwnerDeletion, changed = new(bool), true
			}
		}
		if !changed {
			return nil
		}
		return map[string]any{"ownerReferences": refs}
	})
}

// orphanDependents removes the reference to o from all its dependents, then removes the finalizer from o.
func (g *controller) orphanDependents(ctx context.Context, o object) error {
	for _, d := range g.graph.dependentsOf(o.GetUID()) {
		if !o.canOwn(d) {
			continue // the reference means another object
		}
		if err := g.removeOwners(ctx, d, []types.UID{o.GetUID()}); err != nil {
			return err
		}
	}
	return g.removeFinalizer(ctx, o, metav1.FinalizerOrphanDependents)
}

func (g *controller) clientFor(o object) metadata.ResourceInterface {
	if o.GetNamespace() == "" {
		return g.Metadata.Resource(o.resource)
	}
	return g.Metadata.Resource(o.resource).Namespace(o.GetNamespace())
}

// deleteObject deletes o as the graph shows it. After a conflict it decides by the live object. If that requires
// another decision, the loop syncs again.
func (g *controller) deleteObject(ctx context.Context, o object, policy metav1.DeletionPropagation) error {
	return g.withConflictRetry(ctx, o, func(now object) error {
		if !slices.EqualFunc(now.GetOwnerReferences(), o.GetOwnerReferences(), sameOwner) ||
			!slices.Equal(now.GetFinalizers(), o.GetFinalizers()) {
			return apierrors.NewConflict(o.resource.GroupResource(), o.GetName(),
				errors.New("its owners or finalizers changed meanwhile"))
		}
		uid, version := o.GetUID(), now.GetResourceVersion()
		err := g.clientFor(o).Delete(ctx, o.GetName(), metav1.DeleteOptions{PropagationPolicy: &policy,
			Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
		if err != nil {
			return fmt.Errorf("delete %s: %w", o, err)
		}
		return nil
	})
}

func (g *controller) removeOwners(ctx context.Context, o object, removed []types.UID) error {
	return g.patch(ctx, o, func(now object) map[string]any {
		kept := slices.DeleteFunc(slices.Clone(now.GetOwnerReferences()),
			func(r metav1.OwnerReference) bool { return slices.Contains(removed, r.UID) })
		if len(kept) == len(now.GetOwnerReferences()) {
			return nil
		}
		return map[string]any{"ownerReferences": kept}
	})
}

func (g *controller) removeFinalizer(ctx context.Context, o object, finalizer string) error {
	return g.patch(ctx, o, func(now object) map[string]any {
		kept := slices.DeleteFunc(slices.Clone(now.GetFinalizers()), func(f string) bool { return f == finalizer })
		if len(kept) == len(now.GetFinalizers()) {
			return nil
		}
		return map[string]any{"finalizers": kept}
	})
}

// patch changes an object's metadata. If the object changes between the call of change and the write, both are
// repeated.
func (g *controller) patch(ctx context.Context, o object, change func(now object) map[string]any) error {
	return g.withConflictRetry(ctx, o, func(now object) error {
		fields := change(now)
		if fields == nil {
			return nil
		}
		fields["resourceVersion"] = now.GetResourceVersion()
		text, err := json.Marshal(map[string]any{"metadata": fields})
		if err != nil {
			return err
		}
		if _, err = g.clientFor(o).Patch(ctx, o.GetName(), types.MergePatchType, text,
			metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("patch %s: %w", o, err)
		}
		return nil
	})
}

// withConflictRetry calls act with o as the graph shows it. act must fail with a conflict if the object has another
// version. withConflictRetry then calls act once more with the live object. It returns nil if the object is gone.
func (g *controller) withConflictRetry(ctx context.Context, o object, act func(now object) error) error {
	err := act(o)
	if !apierrors.IsConflict(err) {
		return ignoreNotFound(err)
	}
	live, err := g.clientFor(o).Get(ctx, o.GetName(), metav1.GetOptions{})
	if err != nil {
		return ignoreNotFound(fmt.Errorf("read %s: %w", o, err))
	}
	if live.UID != o.GetUID() {
		return nil
	}
	return ignoreNotFound(act(object{o.served, live}))
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func uidsOf(refs []metav1.OwnerReference) []types.UID {
	out := make([]types.UID, len(refs))
	for i, r := range refs {
		out[i] = r.UID
	}
	return out
}
