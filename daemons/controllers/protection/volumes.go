package protection

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/daemons/kinds/storage"
)

type volumes struct {
	loop.Context
	loop.Loop
	volumes corelisters.PersistentVolumeLister
}

// NewVolumes returns the controller for volumes.
func NewVolumes(c loop.Context) loop.Controller {
	all := informers.PersistentVolumes(c.Informers)
	p := &volumes{Context: c, volumes: all.Lister()}
	p.Loop = loop.Loop{
		Name:            "pv-protection",
		QueueMetricName: "pvprotection",
		Context:         c,
		Sync:            p.sync,
		Synced:          []cache.InformerSynced{all.Informer().HasSynced},
	}
	c.OnChange(all.Informer(), func(_, obj any) {
		if v, ok := obj.(*corev1.PersistentVolume); ok && needsChange(v, storage.VolumeProtection) {
			p.Add(v)
		}
	})
	return p
}

// sync adds the finalizer to a volume, or removes it from a deleted volume that is not bound.
func (p *volumes) sync(ctx context.Context, name string) error {
	v, err := p.volumes.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	if !needsChange(v, storage.VolumeProtection) || v.DeletionTimestamp != nil && v.Status.Phase == corev1.VolumeBound {
		return nil
	}
	updated := v.DeepCopy()
	updated.Finalizers = toggleFinalizer(updated.Finalizers, storage.VolumeProtection)
	if _, err := p.Client.CoreV1().PersistentVolumes().Update(ctx, updated, metav1.UpdateOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		return fmt.Errorf("change the protection of volume %s: %w", name, err)
	}
	return nil
}
