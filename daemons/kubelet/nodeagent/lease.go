package nodeagent

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/kubelet/sleep"
)

// runLeaseLoop renews the node's lease every quarter of its duration.
func (a *Agent) runLeaseLoop(ctx context.Context) {
	every := time.Duration(a.File.NodeLeaseDurationSeconds) * time.Second / 4
	retry := 200 * time.Millisecond
	var lease *coordinationv1.Lease
	for ctx.Err() == nil {
		var err error
		if lease, err = a.renewLease(ctx, lease); err == nil {
			retry = 200 * time.Millisecond
			a.LeaseRenewals.Inc()
			if !sleep.For(ctx, every) {
				return
			}
			continue
		}
		if ctx.Err() == nil {
			a.Log.Warn("renew the node's lease", "node", a.Name, "error", err)
		}
		lease = nil
		if !sleep.For(ctx, retry) {
			return
		}
		retry = min(2*retry, 7*time.Second)
	}
}

func (a *Agent) renewLease(ctx context.Context, current *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	leases := a.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	var err error
	if current == nil {
		current, err = leases.Get(ctx, a.Name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	now := metav1.NewMicroTime(time.Now())
	seconds := int32(a.File.NodeLeaseDurationSeconds)
	if err != nil {
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: a.Name, Namespace: corev1.NamespaceNodeLease},
		}
		if node := a.Node(); node != nil && node.UID != "" {
			lease.OwnerReferences = []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID},
			}
		}
		lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &a.Name, LeaseDurationSeconds: &seconds, RenewTime: &now}
		return leases.Create(ctx, lease, metav1.CreateOptions{})
	}
	current = current.DeepCopy()
	current.Spec.HolderIdentity, current.Spec.LeaseDurationSeconds, current.Spec.RenewTime = &a.Name, &seconds, &now
	return leases.Update(ctx, current, metav1.UpdateOptions{})
}
