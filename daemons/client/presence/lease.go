package presence

import (
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Every server renews a lease beside its endpoints. A server that died cannot take its
// endpoints away, so its peers do when its lease has stood still for staleLooks looks,
// renewEvery apart. Looks are counted, not time: after the API was away for a while,
// every server has the chance to renew before it is taken for dead.
const (
	renewEvery = 5 * time.Second
	staleLooks = 4
)

// Where there are many servers, the first few by name look after their peers, and the others every sweepRest rounds alone whether those do.
const (
	sweepers  = 3
	sweepRest = 12
)

// rhythm is how often a server renews. Where each machine has its own, others' endpoints are used while it fails alone.
func (p *Publisher) rhythm() time.Duration {
	if p.OnlyHere {
		return 6 * renewEvery
	}
	return renewEvery
}

// others counts the peers before this server by name whose leases have moved since the last look.
func (p *Publisher) others(peers map[string]standing) (count int) {
	for name, s := range peers {
		if name < p.Name() && s.looks == 1 {
			count++
		}
	}
	return count
}

// standing is how often a peer's lease was seen without a change.
type standing struct {
	renewed metav1.MicroTime
	looks   int
}

// peerLabel marks the leases of the servers behind the same service.
func (p *Publisher) peerLabel() string { return p.Manager + "/service" }

// renew says that this server lives.
func (p *Publisher) renew(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	leases := p.Client.CoordinationV1().Leases(p.Namespace)
	lease, err := leases.Get(ctx, p.Name(), metav1.GetOptions{})
	renewed := metav1.NewMicroTime(now)
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: p.Name(), Namespace: p.Namespace, Labels: map[string]string{p.peerLabel(): p.Service}},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &p.Node, LeaseDurationSeconds: ptr.To(int32(staleLooks * p.rhythm() / time.Second)),
				RenewTime: &renewed},
		}, metav1.CreateOptions{})
	} else if err == nil {
		lease = lease.DeepCopy()
		lease.Spec.RenewTime = &renewed
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("renew the lease %s/%s: %w", p.Namespace, p.Name(), err)
	}
	return nil
}

// sweep takes the endpoints of peers away whose leases stand still.
func (p *Publisher) sweep(ctx context.Context, peers map[string]standing) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	leases, err := p.Client.CoordinationV1().Leases(p.Namespace).List(ctx, metav1.ListOptions{LabelSelector: p.peerLabel() + "=" + p.Service})
	if err != nil {
		return fmt.Errorf("look at the leases of the other servers of %s: %w", p.Service, err)
	}
	there := map[string]bool{}
	for i := range leases.Items {
		lease := &leases.Items[i]
		if lease.Name == p.Name() || lease.Spec.RenewTime == nil {
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
		p.Log.Info("took the endpoint of a server that fell silent away", "server", lease.Name)
	}
	for name := range peers {
		if !there[name] {
			delete(peers, name)
		}
	}
	return nil
}

// bury removes a dead peer's endpoints, and then its lease, guarded by the version that
// stood still: a server that came back meanwhile keeps it.
func (p *Publisher) bury(ctx context.Context, lease *coordinationv1.Lease) error {
	if err := p.remove(ctx, strings.TrimPrefix(lease.Name, p.Service+"-"), nil); err != nil {
		return err
	}
	err := p.Client.CoordinationV1().Leases(p.Namespace).Delete(ctx, lease.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &lease.ResourceVersion}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("remove the lease %s/%s: %w", p.Namespace, lease.Name, err)
	}
	return nil
}
