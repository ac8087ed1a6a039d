// Package proxy implements Services on one machine. It watches services and endpoints, and maintains packet rules that
// send packets for a service to one of its endpoints. Package rules computes the rules. nft or iptables write them to
// the kernel, where they stay in effect while this daemon is down. In userspace mode, the rules lead to this process,
// and package relay forwards the connections.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client"
	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/config"
	"clusterctl/daemons/proxy/rules"
	"clusterctl/daemons/run"
	"clusterctl/daemons/run/measure"
	"clusterctl/daemons/run/reconcile"
	"clusterctl/kube/kubernetes"
)

// daemon is the proxy of one machine.
type daemon struct {
	cfg            config.Proxy
	env            run.Env
	name           string
	machine        rules.Machine
	client         kubernetes.Interface
	services       cache.Indexer
	slices         cache.Indexer
	nodes          corelisters.NodeLister // only this machine's node
	mode           string
	families       []*ruleFamily
	relays         userspaceRelays // for userspace mode
	othersRemoved  bool            // rules of other modes were removed
	isConntrackSet bool            // connection tracking was configured
	changes        reconcile.Signal
	pending        *reconcile.Keys // services whose rules must be recomputed, by namespace/name
	location       rules.Location
	synced         atomic.Int64 // when the rules were last up to date, in Unix nanoseconds
	duration       prometheus.Histogram
	programming    *programmingMetrics
	health         healthServers
}

const serviceIndex = "service"

// Run maintains this machine's rules until ctx ends. It leaves the rules in place, so that services keep working.
func Run(ctx context.Context, cfg config.Proxy, env run.Env) error {
	changes := reconcile.NewSignal()
	d := &daemon{
		cfg:     cfg,
		env:     env,
		changes: changes,
		pending: reconcile.NewKeys(changes),
		name:    cfg.HostnameOverride,
		mode:    cfg.ProxyMode,
		relays:  userspaceRelays{log: env.Log},
	}
	if d.mode == "" {
		d.mode = modeNFTables
	}
	if d.mode != modeNFTables && d.mode != modeIPTables && d.mode != modeUserspace {
		return fmt.Errorf("proxy mode %q is not known: nftables, iptables and userspace are", d.mode)
	}
	if d.name == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("find the node's name: %w", err)
		}
		d.name = strings.ToLower(host)
	}
	var err error
	if d.machine.Pods, err = parsePrefixes(cfg.ClusterCIDR); err != nil {
		return fmt.Errorf("cluster CIDR: %w", err)
	}
	if d.machine.NodePorts, err = parsePrefixes(cfg.NodePortAddresses); err != nil {
		return fmt.Errorf("node port addresses: %w", err)
	}
	rest, err := client.Config(
		client.Options{
			Kubeconfig: cfg.Kubeconfig,
			APIServers: cfg.APIServers,
			UserAgent:  "kube-proxy",
			Metrics:    env.Metrics,
		},
	)
	if err != nil {
		return err
	}
	d.machine.API = apiEndpoints(rest.Host, cfg.APIServers)
	if d.client, err = kubernetes.NewForConfig(rest); err != nil {
		return fmt.Errorf("set up the API client: %w", err)
	}
	d.duration, d.programming = newDuration(), newProgrammingMetrics(time.Now())
	env.Metrics.MustRegister(append(d.programming.collectors(), d.duration)...)
	env.Health.AddReady("rules", func() error {
		if d.synced.Load() == 0 {
			return errors.New("the rules are not there yet")
		}
		return nil
	})
	g, ctx := errgroup.WithContext(ctx)
	for _, at := range []struct {
		address string
		handler http.Handler
	}{{cfg.HealthzBindAddress, d.healthz()}, {cfg.MetricsBindAddress, d.metrics(env.Local())}} {
		if at.address == "" {
			continue
		}
		ln, err := net.Listen("tcp", at.address)
		if err != nil {
			return fmt.Errorf("listen for health checks: %w", err)
		}
		g.Go(func() error { return run.Serve(ctx, ln, at.handler, nil, time.Second, env.Log) })
	}
	if err := d.openFamilies(); err != nil {
		return err
	}
	if d.mode == modeUserspace {
		g.Go(func() error { return d.relays.serve(ctx) })
	}
	g.Go(func() error { return d.run(ctx) })
	err = g.Wait()
	d.relays.close()
	return err
}

// apiEndpoints returns the API server endpoints that are given as IP addresses. Host names are ignored, because they
// would have to be resolved.
func apiEndpoints(host string, servers []string) (list []netip.AddrPort) {
	if u, err := url.Parse(host); err == nil {
		servers = append(slices.Clone(servers), u.Host)
	}
	for _, s := range servers {
		if e, err := netip.ParseAddrPort(s); err == nil {
			list = append(list, netip.AddrPortFrom(e.Addr().Unmap(), e.Port()))
		}
	}
	return list
}

func newDuration() prometheus.Histogram {
	return measure.NewHistogram(prometheus.HistogramOpts{
		Name: "kubeproxy_sync_proxy_rules_duration_seconds", Help: "How long it took to bring the rules up to date.",
		Buckets: prometheus.ExponentialBuckets(.001, 2, 15),
	})
}

func parsePrefixes(list []string) (out []netip.Prefix, err error) {
	for _, s := range list {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, err
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

// healthz serves the health check of external load balancers, which reports whether the proxy has rules in effect.
func (d *daemon) healthz() http.Handler {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, _ *http.Request) {
		at := d.synced.Load()
		w.Header().Set("Content-Type", "application/json")
		if at == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintf(w, `{"lastUpdated": %q,"currentTime": %q}`, time.Unix(0, at).UTC().Format(time.RFC3339),
			time.Now().UTC().Format(time.RFC3339))
	}
	mux.HandleFunc("GET /healthz", answer)
	mux.HandleFunc("GET /livez", answer)
	return mux
}

// metrics adds the proxy's mode, at upstream's path, to the metrics server.
func (d *daemon) metrics(rest http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/proxyMode", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = io.WriteString(w, d.mode) // an error means that the client has gone
	})
	mux.Handle("/", rest)
	return mux
}

func (d *daemon) run(ctx context.Context) error {
	labelled := func(selector string) *informers.Factory {
		return informers.New(d.client, informers.WithTransform(trimObject),
			informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = selector }))
	}
	// Skip slices without a service: with network policies there are many, and the proxy does not use them.
	const proxied = "!service.kubernetes.io/service-proxy-name,!service.kubernetes.io/headless"
	ofServices, ofSlices := labelled(proxied), labelled(proxied+","+discoveryv1.LabelServiceName)
	services, slices := informers.Services(ofServices), informers.EndpointSlices(ofSlices)
	d.services, d.slices = services.Informer().GetIndexer(), slices.Informer().GetIndexer()
	if err := slices.Informer().AddIndexers(cache.Indexers{serviceIndex: sliceService}); err != nil {
		return fmt.Errorf("index endpoint slices: %w", err)
	}
	// The machine's Node has the zone, which is used for endpoint hints. Do not wait for it: without it, all endpoints
	// are used.
	own := informers.New(d.client, informers.WithTransform(trimObject),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, d.name).String()
		}))
	nodes := informers.Nodes(own)
	d.nodes = nodes.Lister()
	if _, err := nodes.Informer().AddEventHandler(eventHandler(func(any) { d.changes.Wake() })); err != nil {
		return fmt.Errorf("watch this machine's node: %w", err)
	}
	for _, informer := range []cache.SharedIndexInformer{services.Informer(), slices.Informer()} {
		if _, err := informer.AddEventHandler(eventHandler(d.queueService)); err != nil {
			return fmt.Errorf("watch services: %w", err)
		}
	}
	if _, err := slices.Informer().AddEventHandler(d.programming.handler()); err != nil {
		return fmt.Errorf("watch when slices change: %w", err)
	}
	d.health.log = d.env.Log
	defer d.health.close()
	for _, f := range []*informers.Factory{ofServices, ofSlices, own} {
		f.StartWithContext(ctx)
		defer f.Shutdown()
	}
	// The rules of an earlier proxy stay in effect until all services are known.
	if !cache.WaitForCacheSync(ctx.Done(), services.Informer().HasSynced, slices.Informer().HasSynced) {
		return nil
	}
	d.loop(ctx)
	return nil
}

// sliceService is the index function that maps a slice to its service.
func sliceService(o any) ([]string, error) {
	s, ok := o.(*discoveryv1.EndpointSlice)
	if !ok {
		return nil, nil
	}
	return []string{s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]}, nil
}

// trimObject removes the fields of objects that the daemon does not read. It copies the object before changing it.
func trimObject(o any) (any, error) {
	switch o := o.(type) {
	case *corev1.Service:
		c := *o
		c.ManagedFields, c.Annotations = nil, nil
		return &c, nil
	case *discoveryv1.EndpointSlice:
		c := *o
		c.ManagedFields, c.Annotations = nil, nil
		if at, ok := o.Annotations[corev1.EndpointsLastChangeTriggerTime]; ok {
			c.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: at}
		}
		return &c, nil
	case *corev1.Node:
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: o.Name, ResourceVersion: o.ResourceVersion,
			Labels: o.Labels}}, nil
	}
	return o, nil
}

// zoneOf returns the zone of a node, or "" if it is unknown.
func zoneOf(node any) string {
	if n, ok := node.(*corev1.Node); ok && n != nil {
		return n.Labels[corev1.LabelTopologyZone]
	}
	return ""
}
