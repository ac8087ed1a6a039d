package dns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// publisher keeps this server's endpoint in the service that pods ask: an endpoint
// slice of its own, so that servers on several machines do not meet in one object.
type publisher struct {
	client             kubernetes.Interface
	log                *slog.Logger
	namespace, service string
	node               string
	addr               netip.Addr
	port               int32
}

const (
	callTime    = 10 * time.Second
	managerName = "dns.clusterctl"
)

func (p *publisher) name() string { return p.service + "-" + p.node }

// run publishes the endpoint, puts it back when somebody removes it, takes away those of
// servers that died, and its own when ctx ends.
func (p *publisher) run(ctx context.Context) {
	retry := 200 * time.Millisecond
	peers := map[string]standing{}
	for ctx.Err() == nil {
		wait := renewEvery
		err := errors.Join(p.publish(ctx), p.renew(ctx, time.Now()), p.sweep(ctx, peers))
		if err != nil {
			if ctx.Err() == nil {
				p.log.Warn("publish the name server's endpoint", "error", err)
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
	err := errors.Join(
		p.client.DiscoveryV1().EndpointSlices(p.namespace).Delete(stop, p.name(), metav1.DeleteOptions{}),
		p.client.CoordinationV1().Leases(p.namespace).Delete(stop, p.name(), metav1.DeleteOptions{}),
	)
	if err != nil && !apierrors.IsNotFound(err) {
		p.log.Warn("take the name server's endpoint away", "error", err)
	}
}

func (p *publisher) slice() *discoveryv1.EndpointSlice {
	yes, no := true, false
	kind := discoveryv1.AddressTypeIPv4
	if p.addr.Is6() {
		kind = discoveryv1.AddressTypeIPv6
	}
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: p.name(), Namespace: p.namespace, Labels: map[string]string{
			discoveryv1.LabelServiceName: p.service, discoveryv1.LabelManagedBy: managerName,
		}},
		AddressType: kind,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{p.addr.String()}, NodeName: &p.node,
			Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no},
		}},
	}
	for _, port := range []struct {
		name  string
		proto corev1.Protocol
	}{{"dns", corev1.ProtocolUDP}, {"dns-tcp", corev1.ProtocolTCP}} {
		number := p.port
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &port.name, Protocol: &port.proto, Port: &number})
	}
	return s
}

func (p *publisher) publish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	slices, want := p.client.DiscoveryV1().EndpointSlices(p.namespace), p.slice()
	have, err := slices.Get(ctx, want.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = slices.Create(ctx, want, metav1.CreateOptions{})
	case err == nil && have.AddressType != want.AddressType:
		// An address type cannot be changed: the next round makes it anew.
		err = slices.Delete(ctx, want.Name, metav1.DeleteOptions{})
	case err == nil && !(equality.Semantic.DeepEqual(have.Endpoints, want.Endpoints) && equality.Semantic.DeepEqual(have.Ports, want.Ports) &&
		have.Labels[discoveryv1.LabelServiceName] == p.service):
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
		return fmt.Errorf("endpoint slice %s/%s: %w", p.namespace, want.Name, err)
	}
	return nil
}
