package presence

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/api/replica"
)

// Every server renews a lease next to its endpoints. If a lease is not renewed within its duration, the presence
// controller removes the endpoints.
const (
	renewInterval    = 5 * time.Second
	renewalsPerLease = 4 // per lease duration
)

// leaseInterval is the interval between renewals. It is longer if every machine has its own endpoint, because endpoints
// of other machines are used only when the local one fails.
func (p *Publisher) leaseInterval() time.Duration {
	if p.IsMachineLocal {
		return 6 * renewInterval
	}
	return renewInterval
}

// renew renews the lease of this server.
func (p *Publisher) renew(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	leases := p.Client.CoordinationV1().Leases(p.Namespace)
	lease, err := leases.Get(ctx, p.Name(), metav1.GetOptions{})
	want := coordinationv1.LeaseSpec{
		HolderIdentity:       &p.Node,
		LeaseDurationSeconds: ptr.To(int32(renewalsPerLease * p.leaseInterval() / time.Second)),
		RenewTime:            ptr.To(metav1.NewMicroTime(now))}
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: p.Name(), Namespace: p.Namespace,
				Labels: map[string]string{replica.LeaseLabel(p.Manager): p.Service}},
			Spec: want,
		}, metav1.CreateOptions{})
	} else if err == nil {
		lease = lease.DeepCopy()
		lease.Spec = want
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("renew the lease %s/%s: %w", p.Namespace, p.Name(), err)
	}
	return nil
}
