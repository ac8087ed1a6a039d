package loop

import (
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
)

// Followers has one handler for each shared cache, which passes each change to all controllers in turn. A handler per
// controller would cost two hand-overs between goroutines for every change. It would also cost a queue that keeps the
// size it had when the cluster was largest. The functions that are called must not block, since the others are called
// after them.
type Followers struct {
	mu         sync.Mutex
	byInformer map[cache.SharedIndexInformer]*followers
}

// NewFollowers returns an empty Followers, for Context.Followers.
func NewFollowers() *Followers {
	return &Followers{byInformer: map[cache.SharedIndexInformer]*followers{}}
}

// followers holds the functions that follow one cache.
type followers struct {
	mu       sync.Mutex
	handlers []func(old, obj any)
	closed   bool // a change was already delivered: a function that joins now would have missed it
}

// add adds f to the functions to call. It returns false if a change was already delivered.
func (w *followers) add(f func(old, obj any)) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.handlers = append(w.handlers, f)
	return true
}

func (w *followers) notify(old, obj any) {
	w.mu.Lock()
	w.closed = true
	all := w.handlers
	w.mu.Unlock()
	for _, f := range all {
		f(old, obj)
	}
}

// On calls f with every object of a shared cache that is added, changed or deleted. For a deleted object this may be
// its last known state.
func (c Context) On(informer cache.SharedIndexInformer, f func(obj any)) {
	c.OnChange(informer, func(old, obj any) { f(newerState(old, obj)) })
}

// OnChange calls f with the old and the new state of every object of a shared cache that changes. old is nil for an
// added object, obj for a deleted one. Periodic resyncs are left out. f must not block.
func (c Context) OnChange(informer cache.SharedIndexInformer, f func(old, obj any)) {
	if c.Followers == nil {
		OnChange(informer, f)
		return
	}
	c.Followers.mu.Lock()
	defer c.Followers.mu.Unlock()
	w := c.Followers.byInformer[informer]
	if w == nil {
		w = &followers{}
		c.Followers.byInformer[informer] = w
		OnChange(informer, w.notify)
	}
	if !w.add(f) {
		OnChange(informer, f)
	}
}

// OnState is Context.On for a cache that only this controller uses.
func OnState(informer cache.SharedIndexInformer, f func(obj any)) {
	OnChange(informer, func(old, obj any) { f(newerState(old, obj)) })
}

func newerState(old, obj any) any {
	if obj == nil {
		return old
	}
	return obj
}

// OnChange is Context.OnChange for a cache that only this controller uses.
func OnChange(informer cache.SharedIndexInformer, f func(old, obj any)) {
	// Adding a handler to a stopped informer fails, but a stopped informer has no changes to deliver.
	_, _ = Follow(informer, f)
}

// Follow is like OnChange, and returns the registration. With it the caller can learn whether f has been called for all
// initial objects, and can remove f.
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
			if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}
			f(obj, nil)
		},
	})
}
