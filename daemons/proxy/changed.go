package proxy

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/tools/cache"
)

// changed is the services whose rules are to be worked out anew.
type changed struct {
	mu    sync.Mutex
	names map[string]bool
	wake  chan struct{}
}

func newChanged() changed { return changed{names: map[string]bool{}, wake: make(chan struct{}, 1)} }

// note adds a service, by its namespace/name.
func (c *changed) note(name string) {
	if name == "" {
		return
	}
	c.mu.Lock()
	c.names[name] = true
	c.mu.Unlock()
	c.look()
}

// look wakes the loop, which looks at what it depends on besides services.
func (c *changed) look() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// take returns the services that were noted, and forgets them.
func (c *changed) take() map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := c.names
	c.names = map[string]bool{}
	return names
}

// each calls with every object that comes, changes or goes.
func each(do func(any)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: do,
		UpdateFunc: func(was, is any) {
			// A slice may become another service's.
			if serviceOf(was) != serviceOf(is) {
				do(was)
			}
			do(is)
		},
		DeleteFunc: func(o any) {
			if gone, unseen := o.(cache.DeletedFinalStateUnknown); unseen {
				o = gone.Obj
			}
			do(o)
		},
	}
}

// serviceOf is the service that an object is about, "" for none.
func serviceOf(o any) string {
	switch o := o.(type) {
	case *corev1.Service:
		return o.Namespace + "/" + o.Name
	case *discoveryv1.EndpointSlice:
		if name := o.Labels[discoveryv1.LabelServiceName]; name != "" {
			return o.Namespace + "/" + name
		}
	}
	return ""
}
