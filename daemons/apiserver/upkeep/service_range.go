package upkeep

import (
	"context"
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/apiserver/alloc"
	"clusterctl/daemons/apiserver/write"
)

// rangeFinalizer keeps a ServiceCIDR while Services have addresses of it.
const rangeFinalizer = "networking.k8s.io/service-cidr-finalizer"

var serviceRanges = networkingv1.SchemeGroupVersion.WithResource("servicecidrs")

// ensureRange creates the ServiceCIDR of the configured range, and sets its Ready condition. left is the reason if it
// exists and cannot be read.
func (s *Upkeep) ensureRange(ctx context.Context) (left, err error) {
	if s.config.Services == nil {
		return nil, nil
	}
	cidr := &networkingv1.ServiceCIDR{
		TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "ServiceCIDR"},
		ObjectMeta: metav1.ObjectMeta{Name: alloc.DefaultRange, Finalizers: []string{rangeFinalizer}},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: s.config.Services.Networks()},
	}
	if cause, err := s.readErrorOf(cidr); err != nil || cause != nil {
		return cause, err
	}
	if _, err := s.config.Writes.Ensure(ctx, cidr); err != nil {
		return nil, err
	}
	own := write.Own{Resource: serviceRanges, Subresource: "status", Name: alloc.DefaultRange, IsRepeated: true}
	_, err = s.config.Writes.Change(ctx, own, func(live runtime.Object) (runtime.Object, error) {
		if live == nil {
			return nil, apierrors.NewNotFound(serviceRanges.GroupResource(), alloc.DefaultRange)
		}
		r, ok := live.DeepCopyObject().(*networkingv1.ServiceCIDR)
		if !ok || r.DeletionTimestamp != nil ||
			meta.IsStatusConditionTrue(r.Status.Conditions, networkingv1.ServiceCIDRConditionReady) {
			return live, nil
		}
		meta.SetStatusCondition(&r.Status.Conditions, metav1.Condition{
			Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionTrue, Message: "Kubernetes default " +
				"Service CIDR is ready",
		})
		return r, nil
	})
	if err != nil && !apierrors.IsConflict(err) {
		return nil, fmt.Errorf("say that the range of services is ready: %w", err)
	}
	return nil, nil // after a conflict, another server wrote the same condition
}
