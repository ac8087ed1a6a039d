package binder

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/api/storage"
	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
)

type controller struct {
	loop.Context
	loop.Loop // keys are namespace/name for claims, and the name for volumes
	claims    corelisters.PersistentVolumeClaimLister
	volumes   corelisters.PersistentVolumeLister
	classes   storagelisters.StorageClassLister
	pods      loop.PodIndex
	index     index
}

// New returns the controller.
func New(c loop.Context) loop.Controller {
	claims, volumes, pods := informers.PersistentVolumeClaims(c.Informers), informers.PersistentVolumes(
		c.Informers,
	), informers.Pods(c.Informers)
	classes := informers.StorageClasses(c.Informers)
	b := &controller{
		Context: c,
		claims:  claims.Lister(),
		volumes: volumes.Lister(),
		classes: classes.Lister(),
		pods:    loop.PodsByOwner(pods.Informer()),
	}
	c.RegisterMetrics(volumeCount{b.volumes, b.claims})
	b.index = newIndex(claims.Informer(), volumes.Informer())
	b.Loop = loop.Loop{
		Name:            "persistentvolume-binder",
		QueueMetricName: "claims",
		Context:         c,
		Sync:            b.sync,
		Synced: []cache.InformerSynced{
			claims.Informer().HasSynced, volumes.Informer().HasSynced, classes.Informer().HasSynced,
			pods.Informer().HasSynced},
	}
	c.On(claims.Informer(), b.claimChanged)
	c.OnChange(volumes.Informer(), b.volumeChanged)
	c.OnChange(classes.Informer(), b.classChanged)
	c.OnChange(pods.Informer(), b.podChanged)
	return b
}

// claimChanged queues a claim and the volumes that refer to it.
func (b *controller) claimChanged(obj any) {
	claim, ok := obj.(*corev1.PersistentVolumeClaim)
	if !ok {
		return
	}
	b.Add(claim)
	for _, name := range b.index.volumesOf(claim.Namespace + "/" + claim.Name) {
		b.Queue().Add(name)
	}
}

// volumeChanged queues a volume and the claims that it refers to or that refer to it. If the volume is free, it also
// queues the claims that could use it.
func (b *controller) volumeChanged(old, obj any) {
	for _, o := range []any{old, obj} {
		v, ok := o.(*corev1.PersistentVolume)
		if !ok {
			continue
		}
		b.Add(v)
		if ref := v.Spec.ClaimRef; ref != nil {
			b.Queue().Add(ref.Namespace + "/" + ref.Name)
		}
		b.enqueueKeys(b.index.claimsOf(v.Name))
	}
	if v, ok := obj.(*corev1.PersistentVolume); ok && v.Spec.ClaimRef == nil &&
		v.Status.Phase == corev1.VolumeAvailable {
		b.enqueueKeys(b.index.unbound(storage.GetPersistentVolumeClass(v)))
	}
}

// classChanged queues the claims that wait for a class and, if it is the default class, those without a class.
func (b *controller) classChanged(old, obj any) {
	for _, o := range []any{old, obj} {
		if class, ok := o.(*storagev1.StorageClass); ok {
			b.enqueueKeys(b.index.unbound(class.Name))
			if isDefault(class) {
				b.enqueueKeys(b.index.unbound(""))
			}
		}
	}
}

// podChanged queues the unbound claims of a pod that was created, was deleted or got its node, because their events say
// what they wait for.
func (b *controller) podChanged(old, obj any) {
	before, _ := old.(*corev1.Pod)
	after, _ := obj.(*corev1.Pod)
	if before != nil && after != nil && before.Spec.NodeName == after.Spec.NodeName {
		return
	}
	pod := after
	if pod == nil {
		pod = before
	}
	for i := range pod.Spec.Volumes {
		if name := claimOf(pod, &pod.Spec.Volumes[i]); name != "" {
			if claim, err := b.claims.PersistentVolumeClaims(pod.Namespace).Get(name); err == nil &&
				claim.Spec.VolumeName == "" {
				b.Add(claim)
			}
		}
	}
}

func (b *controller) enqueueKeys(keys []string) {
	for _, key := range keys {
		b.Queue().Add(key)
	}
}

func claimOf(pod *corev1.Pod, v *corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name
	}
	return ""
}

func (b *controller) sync(ctx context.Context, key string) error {
	if namespace, name, ok := strings.Cut(key, "/"); ok {
		return b.syncClaim(ctx, namespace, name)
	}
	return b.syncVolume(ctx, key)
}

func (b *controller) syncClaim(ctx context.Context, namespace, name string) error {
	claim, err := b.claims.PersistentVolumeClaims(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	s, err := b.claimInput(claim)
	if err != nil {
		return err
	}
	d := DecideClaim(claim, s)
	if d.Phase == corev1.ClaimLost && claim.Status.Phase != corev1.ClaimLost {
		// Set the phase Lost only after the API server has confirmed it: the cache may be behind.
		if claim, s.Volumes, err = b.liveClaim(ctx, claim); err != nil || claim == nil {
			return err
		}
		d = DecideClaim(claim, s)
	}
	return b.apply(ctx, claim, d)
}

func (b *controller) apply(ctx context.Context, claim *corev1.PersistentVolumeClaim, d ClaimDecision) error {
	if d.Event != nil {
		b.Events.Event(claim, d.Event.Type, d.Event.Reason, d.Event.Message)
	}
	if d.Bind != nil {
		return b.bind(ctx, claim, d.Bind)
	}
	updated := claim.DeepCopy()
	if d.Class != "" {
		updated.Spec.StorageClassName = &d.Class
	}
	if d.Provisioner != "" {
		for _, key := range []string{storage.AnnStorageProvisioner, storage.AnnBetaStorageProvisioner} {
			metav1.SetMetaDataAnnotation(&updated.ObjectMeta, key, d.Provisioner)
		}
	}
	if d.Class != "" ||
		d.Provisioner != "" &&
			(claim.Annotations[storage.AnnStorageProvisioner] != d.Provisioner ||
				claim.Annotations[storage.AnnBetaStorageProvisioner] != d.Provisioner) {
		written, err := b.Client.CoreV1().
			PersistentVolumeClaims(claim.Namespace).
			Update(ctx, updated, metav1.UpdateOptions{})
		if err != nil {
			return fmt.Errorf("prepare claim %s/%s for its provisioner: %w", claim.Namespace, claim.Name, err)
		}
		claim = written
	}
	return b.setClaim(ctx, claim, d.Phase, nil)
}

func (b *controller) claimInput(claim *corev1.PersistentVolumeClaim) (s ClaimInput, err error) {
	if claim.Spec.VolumeName != "" {
		v, err := b.volumes.Get(claim.Spec.VolumeName)
		if apierrors.IsNotFound(err) {
			return s, nil
		}
		s.Volumes = []*corev1.PersistentVolume{v}
		return s, err
	}
	if s.Volumes, err = b.volumes.List(labels.Everything()); err != nil {
		return s, err
	}
	classes, err := b.classes.List(labels.Everything())
	if err != nil {
		return s, err
	}
	s.Default = defaultClass(classes)
	if i := slices.IndexFunc(classes,
		func(c *storagev1.StorageClass) bool {
			return c.Name == storage.GetPersistentVolumeClaimClass(claim)
		}); i >= 0 {
		s.Class = classes[i]
	}
	for _, pod := range b.pods.In(claim.Namespace) {
		if pod.Spec.NodeName == "" && loop.IsActive(pod) &&
			slices.ContainsFunc(pod.Spec.Volumes,
				func(v corev1.Volume) bool { return claimOf(pod, &v) == claim.Name }) {
			s.Waiting = append(s.Waiting, pod.Name)
		}
	}
	slices.Sort(s.Waiting)
	return s, nil
}

func (b *controller) syncVolume(ctx context.Context, name string) error {
	v, err := b.volumes.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	var claim *corev1.PersistentVolumeClaim
	if ref := v.Spec.ClaimRef; ref != nil {
		claim, err = b.claims.PersistentVolumeClaims(ref.Namespace).Get(ref.Name)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	d := DecideVolume(v, claim)
	if d.Unbind || isOrphaned(v, claim) && v.Status.Phase != d.Phase {
		// Release a volume only after the API server has confirmed it: the cache may be behind.
		if v, claim, err = b.liveVolume(ctx, v); err != nil || v == nil {
			return err
		}
		d = DecideVolume(v, claim)
	}
	if d.Event != nil {
		b.Events.Event(v, d.Event.Type, d.Event.Reason, d.Event.Message)
	}
	if d.ClaimEvent != nil {
		b.Events.Event(claim, d.ClaimEvent.Type, d.ClaimEvent.Reason, d.ClaimEvent.Message)
	}
	if d.EnqueueClaim {
		b.Add(claim)
	}
	if d.Unbind {
		if v, err = b.unbind(ctx, v); err != nil {
			return err
		}
	}
	_, err = b.setPhase(ctx, v, d.Phase, d.Message)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
