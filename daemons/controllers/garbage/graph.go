package garbage

import (
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// served is a kind and the resource under which it is served.
type served struct {
	resource schema.GroupVersionResource
	kind     string
}

// meta is the part of an object's metadata that the collector needs.
type meta interface {
	GetNamespace() string // empty for cluster-scoped objects
	GetName() string
	GetUID() types.UID
	GetResourceVersion() string
	GetOwnerReferences() []metav1.OwnerReference
	GetFinalizers() []string
	GetDeletionTimestamp() *metav1.Time
}

// object is the collector's record of one object. There is one for each object of the cluster, so it only points to
// data that a cache holds anyway. That data must not be changed.
type object struct {
	*served
	meta
}

// graph holds the ownership of objects by UID.
type graph struct {
	mu         sync.RWMutex
	objects    map[types.UID]object
	dependents map[types.UID]map[types.UID]struct{}
}

func newGraph() *graph {
	return &graph{objects: map[types.UID]object{}, dependents: map[types.UID]map[types.UID]struct{}{}}
}

// put records an object's present state and returns the previous one, if any.
func (g *graph) put(o object) (before object, isKnown bool) {
	uid := o.GetUID()
	g.mu.Lock()
	defer g.mu.Unlock()
	before, isKnown = g.unlink(uid)
	g.objects[uid] = o
	for _, ref := range o.GetOwnerReferences() {
		if g.dependents[ref.UID] == nil {
			g.dependents[ref.UID] = map[types.UID]struct{}{}
		}
		g.dependents[ref.UID][uid] = struct{}{}
	}
	return before, isKnown
}

// remove removes and returns an object. Its dependents still refer to it.
func (g *graph) remove(uid types.UID) (before object, isKnown bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before, isKnown = g.unlink(uid)
	delete(g.objects, uid)
	return before, isKnown
}

func (g *graph) unlink(uid types.UID) (before object, isKnown bool) {
	before, isKnown = g.objects[uid]
	if !isKnown {
		return before, false
	}
	for _, ref := range before.GetOwnerReferences() {
		delete(g.dependents[ref.UID], uid)
		if len(g.dependents[ref.UID]) == 0 {
			delete(g.dependents, ref.UID)
		}
	}
	return before, true
}

// get returns an object. It returns false if the graph does not have it.
func (g *graph) get(uid types.UID) (object, bool) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	o, ok := g.objects[uid]
	return o, ok
}

// isOwned reports whether all owners of an object are in the graph, in a valid namespace, and not being deleted in the
// foreground. Then nothing has to be done until one of them changes.
func (g *graph) isOwned(o object) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.areOwnersLive(o)
}

func (g *graph) areOwnersLive(o object) bool {
	for _, ref := range o.GetOwnerReferences() {
		if owner, ok := g.objects[ref.UID]; !ok || !owner.canOwn(o) || stateOf(owner) != ownerLiving {
			return false
		}
	}
	return true
}

// unownedObjects returns the UIDs of all objects that are not owned.
func (g *graph) unownedObjects() (out []types.UID) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	for uid, o := range g.objects {
		if !g.areOwnersLive(o) {
			out = append(out, uid)
		}
	}
	return out
}

// dependentsOf returns the objects that have uid as an owner.
func (g *graph) dependentsOf(uid types.UID) []object {
	g.mu.RLock()
	defer g.mu.RUnlock()
	var out []object
	for d := range g.dependents[uid] {
		if o, ok := g.objects[d]; ok {
			out = append(out, o)
		}
	}
	return out
}

// hasDependents reports whether any object has uid as an owner.
func (g *graph) hasDependents(uid types.UID) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return len(g.dependents[uid]) > 0
}

// isBlockedBy reports whether a foreground deletion of uid would have to wait for by, directly or through other
// dependents.
func (g *graph) isBlockedBy(uid, by types.UID) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	seen := map[types.UID]bool{}
	next := []types.UID{uid}
	for len(next) > 0 {
		at := next[len(next)-1]
		next = next[:len(next)-1]
		if at == by {
			return true
		}
		if seen[at] {
			continue
		}
		seen[at] = true
		for d := range g.dependents[at] {
			if o, ok := g.objects[d]; ok && o.isBlocking(at) {
				next = append(next, d)
			}
		}
	}
	return false
}

// removeResource removes and returns all objects of a resource that is no longer watched. Where such an object matters,
// it is looked up in the API from then on.
func (g *graph) removeResource(resource schema.GroupVersionResource) (dropped []object) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for uid, o := range g.objects {
		if o.resource == resource {
			g.unlink(uid)
			delete(g.objects, uid)
			dropped = append(dropped, o)
		}
	}
	return dropped
}

// canOwn reports whether d can have o as its owner: an owner is in the same namespace or cluster-scoped.
func (o object) canOwn(d object) bool {
	namespace := o.GetNamespace()
	return namespace == "" || namespace == d.GetNamespace()
}

func (o object) hasFinalizer(finalizer string) bool {
	return slices.Contains(o.GetFinalizers(), finalizer)
}

func (o object) isDeleting() bool { return o.GetDeletionTimestamp() != nil }

// String returns a name of the object for messages.
func (o object) String() string { return o.kind + " " + o.GetNamespace() + "/" + o.GetName() }

// isBlocking reports whether o blocks the foreground deletion of owner.
func (o object) isBlocking(owner types.UID) bool {
	for _, ref := range o.GetOwnerReferences() {
		if ref.UID == owner {
			return ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion
		}
	}
	return false
}
