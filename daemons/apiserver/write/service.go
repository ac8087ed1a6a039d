package write

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// allocate assigns addresses and ports to Services. It does nothing for other kinds.
func (w *write) allocate(context.Context) error {
	svc, ok := w.obj.(*corev1.Service)
	if !ok || w.s.config.Services == nil || w.subresource != "" {
		return nil
	}
	old, _ := w.old.(*corev1.Service)
	return w.s.config.Services.Allocate(svc, old, &w.claims)
}
