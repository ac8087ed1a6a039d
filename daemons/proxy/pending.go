package proxy

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/tools/cache"
)

// queueService records that the rules of the service to which an object belongs must be recomputed.
func (d *daemon) queueService(o any) {
	if name := serviceOf(o); name != "" {
		d.pending.Add(name)
	}
}

// eventHandler returns an event handler that calls do with every added, changed or deleted object.
func eventHandler(do func(any)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: do,
		UpdateFunc: func(before, after any) {
			// A slice may move from one service to another.
			if serviceOf(before) != serviceOf(after) {
				do(before)
			}
			do(after)
		},
		DeleteFunc: func(o any) {
			if tombstone, unseen := o.(cache.DeletedFinalStateUnknown); unseen {
				o = tombstone.Obj
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
