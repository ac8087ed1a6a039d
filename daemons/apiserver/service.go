package apiserver

import (
	corev1 "k8s.io/api/core/v1"
)

// allocate gives Services their addresses and ports; other kinds need nothing.
func (w *write) allocate() error {
	svc, ok := w.obj.(*corev1.Service)
	if !ok || w.s.services == nil || w.subresource != "" {
		return nil
	}
	old, _ := w.old.(*corev1.Service)
	return w.s.services.Allocate(svc, old, &w.more)
}
