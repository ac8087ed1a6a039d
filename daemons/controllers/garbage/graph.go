package garbage

import (
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// served is a kind and where it is served.
type served struct {
	resource schema.GroupVersionResource
	kind     string
}

// identity says which object is meant, and how to reach it.
type identity struct {
	*served
	namespace string // empty for cluster-scoped objects
	name      string
	uid       types.UID
}

// object is what the collector knows of one object.
type object struct {
	identity
	version    string // of which the rest is known
	owners     []metav1.OwnerReference
	finalizers []string
	deleting   bool
}

// graph is who owns whom, by UID.
type graph struct {
	mu         sync.RWMutex
	objects    map[types.UID]*object
	dependents map[types.UID]map[types.UID]bool
}

func newGraph() *graph {
	return &graph{objects: map[types.UID]*object{}, dependents: map[types.UID]map[types.UID]bool{}}
}

// put records an object's present state.
func (g *graph) put(o *object) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unlink(o.uid)
	g.objects[o.uid] = o
	for _, ref := range o.owners {
		if g.dependents[ref.UID] == nil {
			g.dependents[ref.UID] = map[types.UID]bool{}
		}
		g.dependents[ref.UID][o.uid] = true
	}
}

// remove forgets an object; those that it owned still point to it.
func (g *graph) remove(uid types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unlink(uid)
	delete(g.objects, uid)
}

func (g *graph) unlink(uid types.UID) {
	was := g.objects[uid]
	if was == nil {
		return
	}
	for _, ref := range was.owners {
		delete(g.dependents[ref.UID], uid)
		if len(g.dependents[ref.UID]) == 0 {
			delete(g.dependents, ref.UID)
		}
	}
}

// get returns an object, nil when it is not known.
func (g *graph) get(uid types.UID) *object {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.objects[uid]
}

// dependentsOf returns the objects that name uid as an owner.
func (g *graph) dependentsOf(uid types.UID) []*object {
	g.mu.RLock()
	defer g.mu.RUnlock()
	var out []*object
	for d := range g.dependents[uid] {
		if o := g.objects[d]; o != nil {
			out = append(out, o)
		}
	}
	return out
}

// blockedBy says whether uid, in a foreground deletion, would have to wait for by: directly,
// or because of what waits in between.
func (g *graph) blockedBy(uid, by types.UID) bool {
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
			if o := g.objects[d]; o != nil && o.blocks(at) {
				next = append(next, d)
			}
		}
	}
	return false
}

// forget drops all objects of a resource that is followed no longer, so that they are
// asked for where it matters, and returns them.
func (g *graph) forget(resource schema.GroupVersionResource) (dropped []*object) {
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

// mayOwn says whether d can name o as its owner: owners live in the same namespace or in none.
func (o *object) mayOwn(d *object) bool { return o.namespace == "" || o.namespace == d.namespace }

func (o *object) has(finalizer string) bool { return slices.Contains(o.finalizers, finalizer) }

// blocks says whether o keeps owner from going in a foreground deletion.
func (o *object) blocks(owner types.UID) bool {
	for _, ref := range o.owners {
		if ref.UID == owner {
			return ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion
		}
	}
	return false
}
