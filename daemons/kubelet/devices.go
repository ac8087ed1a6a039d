package kubelet

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"clusterctl/daemons/kubelet/sleep"
)

// devicesError marks that the device claims of a pod could not be prepared.
type devicesError struct{ error }

// Unwrap returns the cause.
func (e *devicesError) Unwrap() error { return e.error }

// readClaim reads the current ResourceClaim from the API.
func (k *Kubelet) readClaim(ctx context.Context, namespace, name string) (*resourcev1.ResourceClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return k.client.ResourceV1().ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{})
}

// deviceStatuses returns the device health of a pod's containers by container name. It returns nil for a pod without
// devices, which is the usual case.
func (k *Kubelet) deviceStatuses(p *corev1.Pod) map[string][]corev1.ResourceStatus {
	if len(p.Spec.ResourceClaims) == 0 && p.Status.ExtendedResourceClaimStatus == nil {
		return nil
	}
	all := map[string][]corev1.ResourceStatus{}
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			if s := k.devices.Status(p, &list[i]); len(s) > 0 {
				all[list[i].Name] = s
			}
		}
	}
	return all
}

// updateDevicePods makes the workers of all pods with devices of a driver update the pod status.
func (k *Kubelet) updateDevicePods(driver string) {
	users := k.devices.Users(driver)
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, uid := range users {
		if w := k.workers[uid]; w != nil {
			w.updateInbox(func() {})
		}
	}
}

// deleteDriverSlices deletes the ResourceSlices that a driver published for this node, so that no more pods are
// scheduled here for its devices. The driver publishes them again when it returns. It retries until it succeeds or ctx
// ends.
func (k *Kubelet) deleteDriverSlices(ctx context.Context, driver string) {
	selector := fields.Set{
		resourcev1.ResourceSliceSelectorNodeName: k.name,
		resourcev1.ResourceSliceSelectorDriver:   driver,
	}.AsSelector().
		String()
	for wait := time.Second; ; wait = min(2*wait, time.Minute) {
		err := k.deleteSlices(ctx, selector)
		if err == nil {
			k.env.Log.Info("removed the resource slices of a driver that is gone", "driver", driver)
			return
		}
		k.env.Log.Warn("remove the resource slices of a driver that is gone", "driver", driver, "error", err)
		if !sleep.For(ctx, wait) || k.drivers.Has(driver) {
			return
		}
	}
}

func (k *Kubelet) deleteSlices(ctx context.Context, selector string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := k.client.ResourceV1().
		ResourceSlices().
		DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: selector})
	if err != nil {
		return fmt.Errorf("delete resource slices %s: %w", selector, err)
	}
	return nil
}
