package loop

import (
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
)

// Followers has one handler for each shared cache, which tells all controllers in turn what changed. A handler of its
// own costs each of them two hand-overs between goroutines for every change, and a queue that stays as long as the
// cluster once was large. What is told must not wait for anything: the others hear of it afterwards.
type Followers struct {
	mu sync.Mutex
	of map[cache.SharedIndexInformer]*followers
}

// NewFollowers returns what Context.Followers is to be.
func NewFollowers() *Followers { return &Followers{of: map[cache.SharedIndexInformer]*followers{}} }

// followers are those of one cache.
type followers struct {
	mu     sync.Mutex
	all    []func(old, obj any)
	closed bool // something has been told: who comes now would have missed it
}

// join adds f to those that are told, false when it is too late for that.
func (w *followers) join(f func(old, obj any)) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.all = append(w.all, f)
	return true
}

func (w *followers) tell(old, obj any) {
	w.mu.Lock()
	w.closed = true
	all := w.all
	w.mu.Unlock()
	for _, f := range all {
		f(old, obj)
	}
}

// On calls f with every object of a shared cache that is added, changed or deleted; a deleted one may be its last known
// state.
func (c Context) On(informer cache.SharedIndexInformer, f func(obj any)) {
	c.OnChange(informer, func(old, obj any) { f(newest(old, obj)) })
}

// OnChange calls f with the old and new state of every object of a shared cache that changes; old is nil for an added
// one, obj for a deleted one. Periodic repeats are left out. f must not wait for anything.
func (c Context) OnChange(informer cache.SharedIndexInformer, f func(old, obj any)) {
	if c.Followers == nil {
		OnChange(informer, f)
		return
	}
	c.Followers.mu.Lock()
	defer c.Followers.mu.Unlock()
	w := c.Followers.of[informer]
	if w == nil {
		w = &followers{}
		c.Followers.of[informer] = w
		OnChange(informer, w.tell)
	}
	if !w.join(f) {
		OnChange(informer, f)
	}
}

// On is Context.On of a cache that is the controller's own.
func On(informer cache.SharedIndexInformer, f func(obj any)) {
	OnChange(informer, func(old, obj any) { f(newest(old, obj)) })
}

func newest(old, obj any) any {
	if obj == nil {
		return old
	}
	return obj
}

// OnChange is Context.OnChange of a cache that is the controller's own.
func OnChange(informer cache.SharedIndexInformer, f func(old, obj any)) {
	// An informer that was stopped takes no handler, and then nothing is lost.
	_, _ = Follow(informer, f)
}

// Follow is OnChange for who wants to know when f has had all objects that there were, or will end it.
func Follow(informer cache.SharedIndexInformer, f func(old, obj any)) (cache.ResourceEventHandlerRegistration, error) {
	return informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { f(nil, obj) },
		UpdateFunc: func(old, obj any) {
			a, errA := meta.Accessor(old)
			b, errB := meta.Accessor(obj)
			if errA == nil && errB == nil && a.GetResourceVersion() == b.GetResourceVersion() {
				return
			}
			f(old, obj)
		},
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			f(obj, nil)
		},
	})
}
