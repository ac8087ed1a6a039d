package dns

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Every server renews a lease beside its endpoint. A server that died cannot take its
// endpoint away, so its peers do when its lease has stood still for staleLooks looks,
// renewEvery apart. Looks are counted, not time: after the API was away for a while,
// every server has the chance to renew before it is taken for dead.
const (
	renewEvery = 5 * time.Second
	staleLooks = 4
	peerLabel  = "dns.clusterctl/service"
)

// standing is how often a peer's lease was seen without a change.
type standing struct {
	renewed metav1.MicroTime
	looks   int
}

// renew says that this server lives.
func (p *publisher) renew(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	leases := p.client.CoordinationV1().Leases(p.namespace)
	lease, err := leases.Get(ctx, p.name(), metav1.GetOptions{})
	renewed := metav1.NewMicroTime(now)
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: p.name(), Namespace: p.namespace, Labels: map[string]string{peerLabel: p.service}},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &p.node, LeaseDurationSeconds: ptr.To(int32(staleLooks * renewEvery / time.Second)),
				RenewTime: &renewed},
		}, metav1.CreateOptions{})
	} else if err == nil {
		lease = lease.DeepCopy()
		lease.Spec.RenewTime = &renewed
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("renew the lease %s/%s: %w", p.namespace, p.name(), err)
	}
	return nil
}

// sweep takes the endpoints of peers away whose leases stand still.
func (p *publisher) sweep(ctx context.Context, peers map[string]standing) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	leases, err := p.client.CoordinationV1().Leases(p.namespace).List(ctx, metav1.ListOptions{LabelSelector: peerLabel + "=" + p.service})
	if err != nil {
		return fmt.Errorf("look at the other name servers' leases: %w", err)
	}
	there := map[string]bool{}
	for i := range leases.Items {
		lease := &leases.Items[i]
		if lease.Name == p.name() || lease.Spec.RenewTime == nil {
			continue
		}
		there[lease.Name] = true
		s := peers[lease.Name]
		if s.looks == 0 || !s.renewed.Equal(lease.Spec.RenewTime) {
			peers[lease.Name] = standing{*lease.Spec.RenewTime, 1}
			continue
		}
		s.looks++
		peers[lease.Name] = s
		if s.looks <= staleLooks {
			continue
		}
		if err := p.bury(ctx, lease); err != nil {
			return err
		}
		p.log.Info("took the endpoint of a name server that fell silent away", "server", lease.Name)
	}
	for name := range peers {
		if !there[name] {
			delete(peers, name)
		}
	}
	return nil
}

// bury removes a dead peer's endpoint, and then its lease, guarded by the version that
// stood still: a server that came back meanwhile keeps it.
func (p *publisher) bury(ctx context.Context, lease *coordinationv1.Lease) error {
	err := p.client.DiscoveryV1().EndpointSlices(p.namespace).Delete(ctx, lease.Name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove the endpoint slice %s/%s: %w", p.namespace, lease.Name, err)
	}
	err = p.client.CoordinationV1().Leases(p.namespace).Delete(ctx, lease.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &lease.ResourceVersion}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("remove the lease %s/%s: %w", p.namespace, lease.Name, err)
	}
	return nil
}
