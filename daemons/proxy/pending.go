package proxy

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/tools/cache"
)

// pendingServices collects the services whose rules must be recomputed.
type pendingServices struct {
	mu    sync.Mutex
	names map[string]bool
	wake  chan struct{}
}

func newPendingServices() pendingServices {
	return pendingServices{names: map[string]bool{}, wake: make(chan struct{}, 1)}
}

// add adds a service by its namespace/name.
func (c *pendingServices) add(name string) {
	if name == "" {
		return
	}
	c.mu.Lock()
	c.names[name] = true
	c.mu.Unlock()
	c.wakeLoop()
}

// retry adds a service whose rules could not be recomputed. It does not wake the loop, which waits before it retries.
func (c *pendingServices) retry(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names[name] = true
}

// wakeLoop wakes the loop, which also checks its other inputs.
func (c *pendingServices) wakeLoop() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// takeAll returns the collected services and clears the set.
func (c *pendingServices) takeAll() map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := c.names
	c.names = map[string]bool{}
	return names
}

// eventHandler returns an event handler that calls do with every added, changed or deleted object.
func eventHandler(do func(any)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: do,
		UpdateFunc: func(was, is any) {
			// A slice may move from one service to another.
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

// serviceOf returns the namespace/name of the service to which an object belongs, or "".
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
