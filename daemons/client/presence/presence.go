// Package presence is how a daemon that runs on several machines is found behind one service without a selector: each keeps an endpoint
// of its own there for as long as it lives, and takes those of others away that died. Who makes the service is the daemon's own business.
package presence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Publisher keeps a server's endpoint in a service: an endpoint slice of its own, so that servers on several machines do not meet in
// one object.
type Publisher struct {
	Client             kubernetes.Interface
	Log                *slog.Logger
	Namespace, Service string
	Node               string // of the server; with the service's it makes the name of the slice
	Addr               netip.Addr
	Ports              []discoveryv1.EndpointPort
	Manager            string       // who manages the slice, as its label says
	Ready              func() error // why the server is not to be asked now; nil: it always is
	OnlyHere           bool         // hint that the endpoint is for its own machine, which counts where every machine has one; peers matter less then
	KeepLast           bool         // leave the endpoint when ctx ends and there is no other: it is expected back

	left bool
}

// Left reports whether Run has taken the endpoint away.
func (p *Publisher) Left() bool { return p.left }

const callTime = 10 * time.Second

// Name is that of the slice, and of the lease beside it.
func (p *Publisher) Name() string { return p.Service + "-" + p.Node }

// Run publishes the endpoint, puts it back when somebody removes it, takes away those of
// servers that died, and its own when ctx ends.
func (p *Publisher) Run(ctx context.Context) {
	retry, rest := 200*time.Millisecond, 0
	peers := map[string]standing{}
	for ctx.Err() == nil {
		wait := p.rhythm()
		err := errors.Join(p.publish(ctx), p.renew(ctx, time.Now()))
		if rest--; rest <= 0 {
			err = errors.Join(err, p.sweep(ctx, peers))
			if rest = 1; p.others(peers) >= sweepers {
				rest = sweepRest
			}
		}
		if err != nil {
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
	if p.KeepLast && p.last(stop) {
		return
	}
	p.left = true
	err := errors.Join(
		p.Client.DiscoveryV1().EndpointSlices(p.Namespace).Delete(stop, p.Name(), metav1.DeleteOptions{}),
		p.Client.CoordinationV1().Leases(p.Namespace).Delete(stop, p.Name(), metav1.DeleteOptions{}),
	)
	if err != nil && !apierrors.IsNotFound(err) {
		p.Log.Warn("take the endpoint of this server away", "error", err)
	}
}

// last reports whether the service has no other endpoint that is ready.
func (p *Publisher) last(ctx context.Context) bool {
	slices, err := p.Client.DiscoveryV1().EndpointSlices(p.Namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + p.Service})
	if err != nil {
		return true // nobody knows of others
	}
	for i := range slices.Items {
		for _, e := range slices.Items[i].Endpoints {
			if slices.Items[i].Name != p.Name() && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
				return false
			}
		}
	}
	return true
}

func (p *Publisher) slice() *discoveryv1.EndpointSlice {
	ready, serving, terminating := p.Ready == nil || p.Ready() == nil, true, false
	kind := discoveryv1.AddressTypeIPv4
	if p.Addr.Is6() {
		kind = discoveryv1.AddressTypeIPv6
	}
	out := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name(), Namespace: p.Namespace, Labels: map[string]string{
			discoveryv1.LabelServiceName: p.Service, discoveryv1.LabelManagedBy: p.Manager,
		}},
		AddressType: kind, Ports: p.Ports,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{p.Addr.String()}, NodeName: &p.Node,
			Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating},
		}},
	}
	if p.OnlyHere {
		out.Endpoints[0].Hints = &discoveryv1.EndpointHints{ForNodes: []discoveryv1.ForNode{{Name: p.Node}}}
	}
	return out
}

func (p *Publisher) publish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	slices, want := p.Client.DiscoveryV1().EndpointSlices(p.Namespace), p.slice()
	have, err := slices.Get(ctx, want.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = slices.Create(ctx, want, metav1.CreateOptions{})
	case err == nil && have.AddressType != want.AddressType:
		// An address type cannot be changed: the next round makes it anew.
		err = slices.Delete(ctx, want.Name, metav1.DeleteOptions{})
	case err == nil && !(equality.Semantic.DeepEqual(have.Endpoints, want.Endpoints) && equality.Semantic.DeepEqual(have.Ports, want.Ports) &&
		have.Labels[discoveryv1.LabelServiceName] == p.Service):
		have = have.DeepCopy()
		have.Endpoints, have.Ports = want.Endpoints, want.Ports
		if have.Labels == nil {
			have.Labels = map[string]string{}
		}
		for k, v := range want.Labels {
			have.Labels[k] = v
		}
		_, err = slices.Update(ctx, have, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("endpoint slice %s/%s: %w", p.Namespace, want.Name, err)
	}
	return nil
}
