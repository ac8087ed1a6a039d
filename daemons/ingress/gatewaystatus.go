package ingress

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"clusterctl/daemons/config"
	"clusterctl/daemons/ingress/route"
	"clusterctl/daemons/ingress/route/gateway"
)

// writeGatewaysAndRoutes writes the statuses of Gateways, their classes and routes.
func (t *statusWriter) writeGatewaysAndRoutes(ctx context.Context) {
	t.watch.mu.Lock()
	if !t.watch.hasGatewayAPI {
		t.watch.mu.Unlock()
		return
	}
	b := t.watch.gatewayBuilder
	var classes []*gatewayv1.GatewayClass
	for name, c := range b.Classes() {
		if !equality.Semantic.DeepEqual(c.Status, b.Class(name).Status) {
			classes = append(classes, c)
		}
	}
	var gateways []*gatewayv1.Gateway
	for _, key := range b.Gateways() {
		object := b.Gateway(key)
		if status := b.GatewayStatus(key, t.location(key)); !equality.Semantic.DeepEqual(object.Status, status) {
			now := object.DeepCopy()
			now.Status = status
			gateways = append(gateways, now)
		}
	}
	var routes []*gatewayv1.HTTPRoute
	for _, key := range b.Routes() {
		object := b.Route(key)
		if object == nil {
			continue
		}
		if status := b.RouteStatus(key); !equality.Semantic.DeepEqual(object.Status.RouteStatus, status) {
			now := object.DeepCopy()
			now.Status.RouteStatus = status
			routes = append(routes, now)
		}
	}
	t.watch.mu.Unlock()
	failed := func(what, name string, err error) {
		if err != nil && ctx.Err() == nil {
			t.env.Log.Warn("write the status of a "+what, "name", name, "err", err)
		}
	}
	for _, c := range classes {
		failed("GatewayClass", c.Name, t.gateways.writeStatus(ctx, "gatewayclasses", c))
	}
	for _, g := range gateways {
		failed("Gateway", g.Namespace+"/"+g.Name, t.gateways.writeStatus(ctx, "gateways", g))
	}
	for _, r := range routes {
		failed("HTTPRoute", r.Namespace+"/"+r.Name, t.gateways.writeStatus(ctx, "httproutes", r))
	}
}

// location returns where clients reach a Gateway. The caller holds the watch's mu.
func (t *statusWriter) location(key route.Key) gateway.Location {
	at := gateway.Location{OpenError: t.watch.sockets.openError}
	add := func(ip, hostname string) {
		if ip != "" {
			at.Addresses = append(at.Addresses,
				gatewayv1.GatewayStatusAddress{Type: ptr.To(gatewayv1.IPAddressType), Value: ip})
		} else if hostname != "" {
			at.Addresses = append(at.Addresses,
				gatewayv1.GatewayStatusAddress{Type: ptr.To(gatewayv1.HostnameAddressType), Value: hostname})
		}
	}
	if t.cfg.GatewayAddresses == config.OfMachines {
		for _, in := range t.ingressAddresses() {
			add(in.IP, in.Hostname)
		}
		at.Problem = "no machine's proxy is ready"
		return at
	}
	name := serviceName(key)
	at.Problem = fmt.Sprintf("service %s has no address yet", name.Name)
	s := t.watch.routeBuilder.Backends.Service(name)
	switch {
	case s == nil:
	case s.Labels[gatewayLabel] != key.Name:
		at.Problem = fmt.Sprintf("service %s does not belong to this Gateway", name.Name)
	default:
		for _, in := range s.Status.LoadBalancer.Ingress {
			add(in.IP, in.Hostname)
		}
	}
	return at
}
