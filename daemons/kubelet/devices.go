package kubelet

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/kubelet/sleep"

	"clusterctl/daemons/kubelet/device"
	"clusterctl/kube/kubernetes"
)

// devicesError marks that the device claims of a pod could not be prepared.
type devicesError struct{ error }

// Unwrap returns the cause.
func (e *devicesError) Unwrap() error { return e.error }

// nodeDevices connects the devices of this node with the API.
type nodeDevices struct {
	node      string
	client    kubernetes.Interface
	manager   *device.Manager
	hasDriver func(name string) bool
	log       *slog.Logger
}

// nodeDevices returns the devices of this node.
func (k *Kubelet) nodeDevices() nodeDevices {
	return nodeDevices{k.name, k.client, k.devices, func(name string) bool { return k.drivers.Has(name) }, k.env.Log}
}

// readClaim reads the current ResourceClaim from the API.
func (d nodeDevices) readClaim(ctx context.Context, namespace, name string) (*resourcev1.ResourceClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return d.client.ResourceV1().ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{})
}

// deviceStatuses returns the device health of a pod's containers by container name. It returns nil for a pod without
// devices, which is the usual case.
func (d nodeDevices) deviceStatuses(p *corev1.Pod) map[string][]corev1.ResourceStatus {
	if len(p.Spec.ResourceClaims) == 0 && p.Status.ExtendedResourceClaimStatus == nil {
		return nil
	}
	all := map[string][]corev1.ResourceStatus{}
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			if s := d.manager.Status(p, &list[i]); len(s) > 0 {
				all[list[i].Name] = s
			}
		}
	}
	return all
}

// updateStatuses makes the workers of pods update the pod status.
func (s *podWorkers) updateStatuses(users []types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, uid := range users {
		if w := s.workers[uid]; w != nil {
			w.inbox.update(func() {})
		}
	}
}

// deleteDriverSlices deletes the ResourceSlices that a driver published for this node, so that no more pods are
// scheduled here for its devices. The driver publishes them again when it returns. It retries until it succeeds or ctx
// ends.
func (d nodeDevices) deleteDriverSlices(ctx context.Context, driver string) {
	selector := fields.Set{
		resourcev1.ResourceSliceSelectorNodeName: d.node,
		resourcev1.ResourceSliceSelectorDriver:   driver,
	}.AsSelector().
		String()
	for wait := time.Second; ; wait = min(2*wait, time.Minute) {
		err := d.deleteSlices(ctx, selector)
		if err == nil {
			d.log.Info("removed the resource slices of a driver that is gone", "driver", driver)
			return
		}
		d.log.Warn("remove the resource slices of a driver that is gone", "driver", driver, "error", err)
		if !sleep.For(ctx, wait) || d.hasDriver(driver) {
			return
		}
	}
}

func (d nodeDevices) deleteSlices(ctx context.Context, selector string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := d.client.ResourceV1().
		ResourceSlices().
		DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: selector})
	if err != nil {
		return fmt.Errorf("delete resource slices %s: %w", selector, err)
	}
	return nil
}
