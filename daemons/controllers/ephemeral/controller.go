// Package ephemeral creates the claims of pods' ephemeral volumes. The pod owns them, so they are deleted with it.
package ephemeral

import (
	"context"
	"fmt"
	"maps"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
)

type controller struct {
	loop.Context
	loop.Loop
	pods   corelisters.PodLister
	claims corelisters.PersistentVolumeClaimLister

	created, failed *prometheus.CounterVec // claims created, and failures to create one
}

// New returns the controller.
func New(c loop.Context) loop.Controller {
	pods, claims := informers.Pods(c.Informers), informers.PersistentVolumeClaims(c.Informers)
	e := &controller{Context: c, pods: pods.Lister(), claims: claims.Lister()}
	e.created = c.Counter("ephemeral_volume_controller_create_total",
		"Claims for ephemeral volumes that were to be created.")
	e.failed = c.Counter("ephemeral_volume_controller_create_failures_total",
		"Failures to create claims for ephemeral volumes.")
	e.created.WithLabelValues()
	e.failed.WithLabelValues()
	e.Loop = loop.Loop{
		Name:            "ephemeral-volume",
		QueueMetricName: "ephemeral_volume",
		Context:         c,
		Sync:            e.sync,
		Synced:          []cache.InformerSynced{pods.Informer().HasSynced, claims.Informer().HasSynced},
	}
	c.OnChange(pods.Informer(), func(old, obj any) {
		if pod, ok := obj.(*corev1.Pod); ok && old == nil && len(Claims(pod)) > 0 {
			e.Add(pod)
		}
	})
	// A claim that was deleted while its pod exists is created again.
	c.OnChange(claims.Informer(), func(old, obj any) {
		if claim, ok := old.(*corev1.PersistentVolumeClaim); ok && obj == nil {
			if key := loop.OwnerKey(claim, "Pod"); key != "" {
				e.Queue().Add(key)
			}
		}
	})
	return e
}

// Claims returns the claims for a pod's ephemeral volumes.
func Claims(pod *corev1.Pod) (claims []*corev1.PersistentVolumeClaim) {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Ephemeral == nil || v.Ephemeral.VolumeClaimTemplate == nil {
			continue
		}
		template := v.Ephemeral.VolumeClaimTemplate
		owner := metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))
		claims = append(claims, &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace:       pod.Namespace,
				Name:            pod.Name + "-" + v.Name,
				OwnerReferences: []metav1.OwnerReference{*owner},
				Labels:          maps.Clone(template.Labels),
				Annotations:     maps.Clone(template.Annotations),
			},
			Spec: *template.Spec.DeepCopy(),
		})
	}
	return claims
}

func (e *controller) sync(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil
	}
	pod, err := e.pods.Pods(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	if !loop.IsActive(pod) {
		return nil
	}
	for _, want := range Claims(pod) {
		if err := e.ensureClaim(ctx, pod, want); err != nil {
			e.Events.Eventf(pod, corev1.EventTypeWarning, "FailedBinding", "ephemeral volume %s: %v",
				volumeOf(pod, want), err)
			return err
		}
	}
	return nil
}

// volumeOf returns the name of the pod's volume that a claim is for.
func volumeOf(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) string {
	return claim.Name[len(pod.Name)+1:]
}

// ensureClaim creates a missing claim. An existing claim of that name that the pod does not own is left alone, since it
// may hold another owner's data.
func (e *controller) ensureClaim(ctx context.Context, pod *corev1.Pod, want *corev1.PersistentVolumeClaim) error {
	current, err := e.claims.PersistentVolumeClaims(want.Namespace).Get(want.Name)
	if err == nil {
		if !metav1.IsControlledBy(current, pod) {
			return fmt.Errorf("PVC %s/%s was not created for pod %s/%s (pod is not owner)", current.Namespace,
				current.Name,
				pod.Namespace, pod.Name)
		}
		return nil
	} else if !apierrors.IsNotFound(err) {
		return err
	}
	e.created.WithLabelValues().Inc()
	if _, err := e.Client.CoreV1().PersistentVolumeClaims(want.Namespace).Create(ctx, want,
		metav1.CreateOptions{}); err != nil {
		e.failed.WithLabelValues().Inc()
		return fmt.Errorf("create PVC %s: %w", want.Name, err)
	}
	return nil
}
