package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/config"
	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/run"
	"clusterctl/kube/kubernetes"
)

// Times of the ports for webhooks.
const (
	receiveTimeout  = 15 * time.Second // of reading a request, and of answering it
	endpointRefresh = time.Minute      // between two writes of the service's endpoint
	endpointTimeout = 5 * time.Second  // of one write
	listenRetry     = 10 * time.Second // pause after a port could not be opened
	endpointRetry   = 5 * time.Second  // pause after a write that failed
)

// receive serves webhooks until ctx ends: on a port of 127.0.0.1 without TLS, and on a port of the machine with TLS.
// Only the active controller does so. The service gitops-receiver leads to it. A port that is in use does not keep
// sources from being reconciled.
func receive(ctx context.Context, cfg config.GitOps, handler http.Handler, client kubernetes.Interface,
	log *slog.Logger) error {
	var all sync.WaitGroup
	defer all.Wait()
	if cfg.ReceiverHTTPPort != 0 {
		all.Go(func() {
			listen(ctx, net.JoinHostPort("127.0.0.1", strconv.Itoa(cfg.ReceiverHTTPPort)), handler, nil, log)
		})
	}
	if cfg.ReceiverPort == 0 {
		return nil
	}
	security, err := run.ServerTLS(cfg.ReceiverCertFile, cfg.ReceiverKeyFile)
	if err != nil {
		return fmt.Errorf("make a certificate for webhooks: %w", err)
	}
	security.MinVersion = tls.VersionTLS12 // clients are not the cluster's own
	all.Go(func() { listen(ctx, net.JoinHostPort("", strconv.Itoa(cfg.ReceiverPort)), handler, security, log) })
	publish(ctx, cfg, client, log)
	return nil
}

// listen serves webhooks on an address until ctx ends. While that fails, it tries again.
func listen(ctx context.Context, address string, handler http.Handler, security *tls.Config, log *slog.Logger) {
	for ctx.Err() == nil {
		ln, err := net.Listen("tcp", address)
		if err == nil {
			server := run.NewServer(handler, security, log)
			server.ReadTimeout, server.WriteTimeout, server.MaxHeaderBytes = receiveTimeout, receiveTimeout, 16<<10
			err = run.ServeWith(ctx, server, ln, time.Second)
		}
		if err != nil && ctx.Err() == nil {
			log.Warn("receive webhooks", "address", address, "err", err)
			pause(ctx, listenRetry)
		}
	}
}

// pause waits for a time, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// publish writes the endpoint of the service gitops-receiver until ctx ends, and then deletes it. The lease is released
// after that, so that the endpoint of the next active controller stays.
func publish(ctx context.Context, cfg config.GitOps, client kubernetes.Interface, log *slog.Logger) {
	for ctx.Err() == nil {
		next := endpointRefresh
		for _, ip := range cfg.NodeIP {
			if err := publishOnce(ctx, cfg, ip, client); err != nil && ctx.Err() == nil {
				log.Warn("publish the endpoint for webhooks", "err", err)
				next = endpointRetry
			}
		}
		pause(ctx, next)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endpointTimeout)
	defer cancel()
	for _, name := range []string{gitsource.ReceiverService, gitsource.ReceiverService + "-ipv6"} {
		err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem).Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			log.Warn("delete the endpoint for webhooks", "err", err)
		}
	}
}

// publishOnce writes the endpoint slice of one address.
func publishOnce(ctx context.Context, cfg config.GitOps, ip string, client kubernetes.Interface) error {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return err
	}
	name, family := gitsource.ReceiverService, discoveryv1.AddressTypeIPv4
	if addr.Is6() {
		name, family = gitsource.ReceiverService+"-ipv6", discoveryv1.AddressTypeIPv6
	}
	text, err := json.Marshal(discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: discoveryv1.SchemeGroupVersion.String(), Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceSystem, Labels: map[string]string{
			discoveryv1.LabelServiceName: gitsource.ReceiverService, discoveryv1.LabelManagedBy: gitsource.Manager}},
		AddressType: family,
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To("https"), Protocol: ptr.To(corev1.ProtocolTCP),
			Port: ptr.To(int32(cfg.ReceiverPort))}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{addr.String()}, NodeName: &cfg.NodeName,
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, endpointTimeout)
	defer cancel()
	_, err = client.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem).Patch(ctx, name, types.ApplyPatchType, text,
		metav1.PatchOptions{FieldManager: gitsource.Manager, Force: ptr.To(true)})
	return err
}
