// Package presence publishes a daemon that runs on several machines behind one Service without a selector. Each replica
// writes its own endpoint slices, one for each address family, and renews a lease. The presence controller
// (daemons/controllers/presence) removes the endpoints of dead replicas. The daemon creates the Service itself.
package presence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/api/replica"
	"clusterctl/kube/kubernetes"
)

// Publisher publishes a server's endpoints for a Service. It has its own endpoint slices, one per family, so that
// servers on several machines do not write to the same object.
type Publisher struct {
	Client             kubernetes.Interface
	Log                *slog.Logger
	Namespace, Service string
	Node               string // the server's node, part of the slice's name
	// one address of each family that the server serves; the cluster's first family comes first
	Addrs          []netip.Addr
	Ports          []discoveryv1.EndpointPort
	Manager        string       // value of the slice's managed-by label
	Ready          func() error // returns why the server must not get requests now; nil means that it always may
	IsMachineLocal bool         // hint that only this machine uses the endpoint; renewed less often
	// when ctx ends, keep the endpoint if there is no other one: the server is expected to return
	KeepLast bool

	hasCleanedUp bool // slices of families without an address were removed
	hasLeft      bool
}

// HasLeft reports whether Run has removed the endpoint.
func (p *Publisher) HasLeft() bool { return p.hasLeft }

const callTimeout = 10 * time.Second

// Name returns the name of the slice with the first address, and of the lease.
func (p *Publisher) Name() string { return replica.Lease(p.Service, p.Node) }

// secondName returns the name of the slice with the server's second address.
func (p *Publisher) secondName(family discoveryv1.AddressType) string {
	names := replica.Slices(p.Service, p.Node)
	if family == discoveryv1.AddressTypeIPv4 {
		return names[1]
	}
	return names[2]
}

// remove deletes the slices of this server, except those in but.
func (p *Publisher) remove(ctx context.Context, but []*discoveryv1.EndpointSlice) (err error) {
	for _, name := range replica.Slices(p.Service, p.Node) {
		if slices.ContainsFunc(but, func(s *discoveryv1.EndpointSlice) bool { return s.Name == name }) {
			continue
		}
		if e := p.Client.DiscoveryV1().EndpointSlices(p.Namespace).Delete(ctx, name,
			metav1.DeleteOptions{}); e != nil &&
			!apierrors.IsNotFound(e) {
			err = errors.Join(err, fmt.Errorf("remove the endpoint slice %s/%s: %w", p.Namespace, name, e))
		}
	}
	return err
}

// Run publishes the endpoints and restores them if they are deleted. It deletes them when ctx ends.
func (p *Publisher) Run(ctx context.Context) {
	retry := 200 * time.Millisecond
	for ctx.Err() == nil {
		wait := p.leaseInterval()
		if err := errors.Join(p.publish(ctx), p.renew(ctx, time.Now())); err != nil {
			if ctx.Err() == nil {
				p.Log.Warn("publish the endpoint of this server", "error", err)
			}
			wait, retry = retry, min(2*retry, 10*time.Second)
		} else {
			retry = 200 * time.Millisecond
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	if p.KeepLast && p.isLast(stop) {
		return
	}
	p.hasLeft = true
	err := p.remove(stop, nil)
	if e := p.Client.CoordinationV1().Leases(p.Namespace).Delete(stop, p.Name(), metav1.DeleteOptions{}); e != nil &&
		!apierrors.IsNotFound(e) {
		err = errors.Join(err, fmt.Errorf("remove the lease %s/%s: %w", p.Namespace, p.Name(), e))
	}
	if err != nil {
		p.Log.Warn("take the endpoint of this server away", "error", err)
	}
}

// isLast reports whether the service has no other endpoint that is ready.
func (p *Publisher) isLast(ctx context.Context) bool {
	found, err := p.Client.DiscoveryV1().
		EndpointSlices(p.Namespace).
		List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + p.Service})
	if err != nil {
		return true // assume that there is none
	}
	own := p.slices()
	for i := range found.Items {
		if slices.ContainsFunc(own, func(s *discoveryv1.EndpointSlice) bool { return s.Name == found.Items[i].Name }) {
			continue
		}
		for _, e := range found.Items[i].Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				return false
			}
		}
	}
	return true
}

// slices returns the slices of this server, one for each of its addresses.
func (p *Publisher) slices() (list []*discoveryv1.EndpointSlice) {
	ready, serving, terminating := p.Ready == nil || p.Ready() == nil, true, false
	for i, addr := range p.Addrs {
		family, name := discoveryv1.AddressTypeIPv4, p.Name()
		if addr.Is6() {
			family = discoveryv1.AddressTypeIPv6
		}
		if i > 0 {
			name = p.secondName(family)
		}
		s := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: p.Namespace, Labels: map[string]string{
				discoveryv1.LabelServiceName: p.Service, discoveryv1.LabelManagedBy: p.Manager,
			}},
			AddressType: family, Ports: p.Ports,
			Endpoints: []discoveryv1.Endpoint{{
				Addresses: []string{addr.String()}, NodeName: &p.Node,
				Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating},
			}},
		}
		if p.IsMachineLocal {
			s.Endpoints[0].Hints = &discoveryv1.EndpointHints{ForNodes: []discoveryv1.ForNode{{Name: p.Node}}}
		}
		list = append(list, s)
	}
	return list
}

// publish writes the server's slices. If one family fails, the other is still written.
func (p *Publisher) publish(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	wanted := p.slices()
	for _, s := range wanted {
		if e := p.writeSlice(ctx, s); e != nil {
			err = errors.Join(err, fmt.Errorf("endpoint slice %s/%s: %w", p.Namespace, s.Name, e))
		}
	}
	if err == nil && !p.hasCleanedUp { // slices of an earlier process with other addresses
		err = p.remove(ctx, wanted)
		p.hasCleanedUp = err == nil
	}
	return err
}

func (p *Publisher) writeSlice(ctx context.Context, want *discoveryv1.EndpointSlice) error {
	client := p.Client.DiscoveryV1().EndpointSlices(p.Namespace)
	current, err := client.Get(ctx, want.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = client.Create(ctx, want, metav1.CreateOptions{})
	case err == nil && current.AddressType != want.AddressType:
		// An address type is immutable: delete the slice, and create it in the next round.
		err = client.Delete(ctx, want.Name, metav1.DeleteOptions{})
	case err == nil && !(equality.Semantic.DeepEqual(current.Endpoints, want.Endpoints) &&
		equality.Semantic.DeepEqual(current.Ports, want.Ports) &&
		current.Labels[discoveryv1.LabelServiceName] == p.Service):
		current = current.DeepCopy()
		current.Endpoints, current.Ports = want.Endpoints, want.Ports
		if current.Labels == nil {
			current.Labels = map[string]string{}
		}
		for k, v := range want.Labels {
			current.Labels[k] = v
		}
		_, err = client.Update(ctx, current, metav1.UpdateOptions{})
	}
	return err
}
