// Package dns is the cluster's name server. It answers for the cluster's domain from services and endpoints, according
// to the Kubernetes DNS specification, and forwards other queries to other servers. The kubelet configures pods to use
// it, and the service proxy implements the service in front of it. This daemon only publishes its own address as an
// endpoint of that service.
package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"clusterctl/daemons/client"
	"clusterctl/daemons/config"
	"clusterctl/daemons/dns/upstream"
	"clusterctl/daemons/dns/zone"
	"clusterctl/daemons/run"
	"clusterctl/kube/kubernetes"
)

// resolvConf is the file with the machine's name servers.
const resolvConf = "/etc/resolv.conf"

// Run runs the name server of one machine until ctx ends.
func Run(ctx context.Context, cfg config.DNS, env run.Env) error {
	if err := config.Check(&cfg); err != nil {
		return err
	}
	rest, err := client.Config(
		client.Options{Kubeconfig: cfg.Kubeconfig, APIServers: cfg.APIServers, UserAgent: "dns", Metrics: env.Metrics},
	)
	if err != nil {
		return err
	}
	clients, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return fmt.Errorf("set up the API client: %w", err)
	}
	return serve(ctx, cfg, env, clients)
}

// serve is Run with a given API client.
func serve(ctx context.Context, cfg config.DNS, env run.Env, clients kubernetes.Interface) error {
	names, err := newZone(cfg)
	if err != nil {
		return err
	}
	s, err := openSockets(ctx, cfg.BindAddress, env.Log)
	if err != nil {
		return err
	}
	defer s.close()
	resolver, err := newResolver(cfg, env, s)
	if err != nil {
		return err
	}
	domain := strings.ToLower(strings.TrimSuffix(cfg.ClusterDomain, ".")) + "."
	sources, err := newClients(cfg)
	if err != nil {
		return err
	}
	h := &handler{
		zone:             names,
		resolver:         resolver,
		clients:          sources,
		metrics:          newMetrics(serverName, domain),
		log:              env.Log,
		isLoggingQueries: cfg.LogQueries,
	}
	env.Metrics.MustRegister(append(h.metrics.collectors, resolver)...)
	synced := make(chan struct{})
	var servicesReady atomic.Bool
	env.Health.AddReady("names", func() error {
		if !servicesReady.Load() {
			return errors.New("services are not known yet")
		}
		return nil
	})
	g, ctx := errgroup.WithContext(ctx)
	if cfg.HealthAddress != "" {
		ln, err := net.Listen("tcp", cfg.HealthAddress)
		if err != nil {
			return fmt.Errorf("listen for health checks: %w", err)
		}
		g.Go(func() error { return run.Serve(ctx, ln, env.Local(), nil, time.Second, env.Log) })
	}
	g.Go(func() error {
		return watchCluster(ctx, clients, names, func() {
			servicesReady.Store(true)
			close(synced)
		})
	})
	g.Go(func() error { return sources.watchNodes(ctx, clients, env.Log) })
	// Do not answer "no such name" before the names are known. Queries wait in the socket until then.
	g.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case <-synced:
		}
		env.Log.Info("answering", "address", s.address(), "domain", cfg.ClusterDomain, "upstream", resolver.Servers())
		return serveQueries(ctx, cfg, env, clients, h, s)
	})
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// serverName is the value of the label server in metrics, in CoreDNS' format.
const serverName = "dns://:53"

// drainTime is how long queries are still answered after the endpoint was removed.
const drainTime = time.Second

// serveQueries answers queries and publishes the endpoint. When ctx ends, it removes the endpoint and answers the last
// queries.
func serveQueries(
	ctx context.Context,
	cfg config.DNS,
	env run.Env,
	clients kubernetes.Interface,
	h *handler,
	s *sockets,
) error {
	if err := s.storeInSystemd(); err != nil {
		env.Log.Warn("queries are lost while this daemon is restarted", "error", err)
	}
	udp, err := newUDPServer(h, s.udp)
	if err != nil {
		return err
	}
	// The servers end after the publisher has removed the endpoint.
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	g, failed := errgroup.WithContext(serving)
	for range max(runtime.GOMAXPROCS(0), 2) {
		g.Go(func() error { return udp.serve(serving, s.stored.Load) })
	}
	g.Go(func() error { return newTCPServer(h, s.tcp, defaultLimits).serve(serving) })
	g.Go(func() error { h.resolver.Run(serving); return nil })
	g.Go(func() error {
		defer end()
		publishing, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(failed, stop)()
		if cfg.ServiceName == "" {
			<-publishing.Done()
			return nil
		}
		p, err := newPublisher(cfg, env, clients, s.address())
		if err != nil {
			return err
		}
		if p.Run(publishing); p.HasLeft() {
			timer := time.NewTimer(drainTime)
			defer timer.Stop()
			<-timer.C
		}
		return nil
	})
	err = g.Wait()
	udp.waiters.Wait()
	return err
}

func newZone(cfg config.DNS) (*zone.Zone, error) {
	namespace, service, _ := strings.Cut(cfg.ServiceName, "/")
	c := zone.Config{
		Domain:  cfg.ClusterDomain,
		Service: zone.Key{Namespace: namespace, Name: service},
		TTL:     cfg.TTL,
		Serial:  uint32(time.Now().Unix()),
		Hosts:   map[string][]netip.Addr{},
	}
	for _, text := range append(cfg.ClusterCIDR[:len(cfg.ClusterCIDR):len(cfg.ClusterCIDR)],
		cfg.ServiceClusterIPRange...) {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("network %q: %w", text, err)
		}
		c.Networks = append(c.Networks, p.Masked())
	}
	for name, list := range cfg.Hosts {
		for text := range strings.FieldsSeq(list) {
			ip, err := netip.ParseAddr(text)
			if err != nil {
				return nil, fmt.Errorf("host %s: %w", name, err)
			}
			c.Hosts[name] = append(c.Hosts[name], ip)
		}
	}
	return zone.New(c)
}

func newResolver(cfg config.DNS, env run.Env, s *sockets) (*upstream.Resolver, error) {
	self, err := s.isSelf()
	if err != nil {
		return nil, err
	}
	c := upstream.Config{
		Servers:        cfg.Upstream,
		ResolvConf:     resolvConf,
		Zones:          map[string][]string{},
		IsSelf:         self,
		Policy:         cfg.Policy,
		MaxTTL:         cfg.CacheTTL,
		MaxNegativeTTL: cfg.DenialTTL,
		StaleFor:       cfg.ServeStale,
		Log:            env.Log,
		Name:           serverName,
	}
	for domain, servers := range cfg.ForwardZones {
		c.Zones[domain] = strings.Fields(servers)
	}
	return upstream.New(c)
}
