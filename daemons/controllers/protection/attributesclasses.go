package protection

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/daemons/kinds/storage"
)

type attributesClasses struct {
	loop.Context
	loop.Loop
	classes         storagelisters.VolumeAttributesClassLister
	claims, volumes cache.Indexer
}

// byAttributes indexes claims and volumes by the VolumeAttributesClasses that they name.
const byAttributes = "by classes of attributes"

// NewAttributesClasses returns the controller for VolumeAttributesClasses.
func NewAttributesClasses(c loop.Context) loop.Controller {
	all := informers.VolumeAttributesClasses(c.Informers)
	claims, volumes := informers.PersistentVolumeClaims(c.Informers).
		Informer(),
		informers.PersistentVolumes(c.Informers).
			Informer()
	for _, informer := range []cache.SharedIndexInformer{claims, volumes} {
		_ = informer.AddIndexers(
			cache.Indexers{byAttributes: func(obj any) ([]string, error) { return attributesOf(obj), nil }},
		)
	}
	p := &attributesClasses{
		Context: c,
		classes: all.Lister(),
		claims:  claims.GetIndexer(),
		volumes: volumes.GetIndexer(),
	}
	p.Loop = loop.Loop{Name: "vac-protection", QueueMetricName: "vacprotection", Context: c, Sync: p.sync,
		Synced: []cache.InformerSynced{all.Informer().HasSynced, claims.HasSynced, volumes.HasSynced}}
	c.OnChange(all.Informer(), func(_, obj any) {
		if class, ok := obj.(*storagev1.VolumeAttributesClass); ok &&
			needsChange(class, storage.AttributesClassProtection) {
			p.Add(class)
		}
	})
	for _, informer := range []cache.SharedIndexInformer{claims, volumes} {
		c.OnChange(informer, func(old, obj any) {
			now := attributesOf(obj)
			for _, name := range attributesOf(old) {
				if !slices.Contains(now, name) {
					p.Queue().Add(name)
				}
			}
		})
	}
	return p
}

// attributesOf returns the VolumeAttributesClasses that a claim has, requests or is being changed to, or the one of a
// volume.
func attributesOf(obj any) (names []string) {
	add := func(name *string) {
		if name != nil && *name != "" && !slices.Contains(names, *name) {
			names = append(names, *name)
		}
	}
	switch o := obj.(type) {
	case *corev1.PersistentVolumeClaim:
		if o == nil {
			return nil
		}
		add(o.Spec.VolumeAttributesClassName)
		add(o.Status.CurrentVolumeAttributesClassName)
		if m := o.Status.ModifyVolumeStatus; m != nil {
			add(&m.TargetVolumeAttributesClassName)
		}
	case *corev1.PersistentVolume:
		if o != nil {
			add(o.Spec.VolumeAttributesClassName)
		}
	}
	return names
}

// sync removes the finalizer from a deleted class that no object names.
func (p *attributesClasses) sync(ctx context.Context, name string) error {
	class, err := p.classes.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	if !needsChange(class, storage.AttributesClassProtection) {
		return nil
	}
	if class.DeletionTimestamp != nil {
		used, err := p.isUsed(ctx, name)
		if err != nil || used {
			return err
		}
	}
	updated := class.DeepCopy()
	updated.Finalizers = toggleFinalizer(updated.Finalizers, storage.AttributesClassProtection)
	if _, err := p.Client.StorageV1().VolumeAttributesClasses().Update(ctx, updated,
		metav1.UpdateOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		return fmt.Errorf("change the protection of volume attributes class %s: %w", name, err)
	}
	return nil
}

// isUsed reports whether a claim or volume names a class. It asks the caches, and if these have none, the API server: a
// claim may be new.
func (p *attributesClasses) isUsed(ctx context.Context, name string) (bool, error) {
	for _, from := range []cache.Indexer{p.volumes, p.claims} {
		if keys, err := from.IndexKeys(byAttributes, name); err != nil || len(keys) > 0 {
			return true, err
		}
	}
	claims, err := p.Client.CoreV1().PersistentVolumeClaims(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("look which claims name volume attributes class %s: %w", name, err)
	}
	for i := range claims.Items {
		if slices.Contains(attributesOf(&claims.Items[i]), name) {
			return true, nil
		}
	}
	volumes, err := p.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("look which volumes name volume attributes class %s: %w", name, err)
	}
	for i := range volumes.Items {
		if slices.Contains(attributesOf(&volumes.Items[i]), name) {
			return true, nil
		}
	}
	return false, nil
}
