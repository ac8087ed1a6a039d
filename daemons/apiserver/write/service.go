package write

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// allocate assigns addresses and ports to Services. It does nothing for other kinds.
func (a *attempt) allocate(context.Context) error {
	svc, ok := a.next.obj.(*corev1.Service)
	if !ok || a.s.config.Services == nil || a.w.subresource != "" {
		return nil
	}
	old, _ := a.live.obj.(*corev1.Service)
	return a.s.config.Services.Allocate(svc, old, &a.claims)
}
