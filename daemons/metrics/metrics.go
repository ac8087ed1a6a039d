// Package metrics serves metrics.k8s.io: the CPU and memory usage of nodes and pods, as reported by their kubelets. It
// polls all kubelets and stores two points per container. It is an aggregated API server behind the main one.
// Autoscalers and others act on the results.
package metrics

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/client"
	"clusterctl/daemons/client/presence"
	"clusterctl/daemons/config"
	"clusterctl/daemons/run"
	"clusterctl/kube/kubernetes"
)

// Options replaces connections to the outside, for tests and single-process clusters.
type Options struct {
	Source Source // nil means the kubelets, over the network
	Alias  string // host at which the API server reaches this server; if empty, an endpoint is published
}

// Run collects and serves until ctx ends.
func Run(ctx context.Context, cfg config.MetricsServer, env run.Env) error {
	return RunWith(ctx, cfg, env, Options{})
}

// RunWith is like Run, with options.
func RunWith(ctx context.Context, cfg config.MetricsServer, env run.Env, o Options) error {
	if cfg.MetricResolution < time.Second || cfg.KubeletRequestTimeout <= 0 {
		return fmt.Errorf("--metric-resolution=%s --kubelet-request-timeout=%s: at least 1s, and more than nothing",
			cfg.MetricResolution, cfg.KubeletRequestTimeout)
	}
	restConfig, err := client.Config(
		client.Options{Kubeconfig: cfg.Kubeconfig, APIServers: cfg.APIServers, UserAgent: Name, Metrics: env.Metrics},
	)
	if err != nil {
		return err
	}
	typed, err := kubernetes.NewForConfig(restConfig)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	untyped, err := dynamic.NewForConfig(restConfig)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	nodes, err := newKubelets(cfg.Kubeconfig)
	if err != nil {
		return err
	}
	if o.Source == nil {
		o.Source = nodes
	}
	objects, err := newObjectWatcher(typed)
	if err != nil {
		return err
	}
	store := newStore(cfg.MetricResolution)
	collector := newCollector(objects, o.Source, store, min(cfg.KubeletRequestTimeout, cfg.MetricResolution), env.Log,
		newSelfMetrics(env.Metrics))
	judge := client.NewAccessReviewer(typed)
	allowed, err := newCallers(cfg, env.Log)
	if err != nil {
		return err
	}
	s := &server{
		callers: allowed, reviewer: judge, view: &objectView{objects, store}, isSynced: objects.isSynced,
		daemonPages: env.Guarded(cfg.ClientCAFile != "", cfg.Profiling, judge), log: env.Log,
	}
	secured, err := run.ServerTLS(cfg.TLSCertFile, cfg.TLSPrivateKeyFile)
	if err != nil {
		return err
	}
	// Two authorities sign client certificates, for different purposes, so each request is checked.
	secured.ClientAuth = tls.RequestClientCert
	ln, err := net.Listen("tcp", net.JoinHostPort(cfg.BindAddress, strconv.Itoa(cfg.SecurePort)))
	if err != nil {
		return fmt.Errorf("listen for the API server: %w", err)
	}
	port := int32(ln.Addr().(*net.TCPAddr).Port)
	fresh := func() error { return errors.Join(objects.checkSynced(), collector.checkFresh(time.Now())) }
	env.Health.AddReady("objects", objects.checkSynced)
	env.Health.AddInformational("metrics", fresh)
	p := &registration{
		registrar: &registrar{client: typed, dynamic: untyped, port: port, alias: o.Alias}, log: env.Log,
	}
	if o.Alias == "" {
		if p.endpoint, err = newEndpoint(cfg, env, typed, port, fresh); err != nil {
			return errors.Join(err, ln.Close())
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { objects.run(ctx); return nil })
	g.Go(func() error { return run.Serve(ctx, ln, s, secured, 2*time.Second, env.Log) })
	g.Go(func() error {
		if !objects.awaitSync(ctx) {
			return nil
		}
		return collector.run(ctx)
	})
	g.Go(func() error { p.run(ctx); return nil })
	return g.Wait()
}

// newEndpoint returns the publisher of this server's endpoint. The endpoint is ready while fresh returns nil.
func newEndpoint(
	cfg config.MetricsServer,
	env run.Env,
	typed kubernetes.Interface,
	port int32,
	fresh func() error,
) (*presence.Publisher, error) {
	addr, err := netip.ParseAddr(cfg.NodeIP)
	if err != nil {
		return nil, fmt.Errorf("--node-ip: the address at which API servers reach this one: %w", err)
	}
	name := cfg.NodeName
	if name == "" {
		if name, err = os.Hostname(); err != nil {
			return nil, fmt.Errorf("find the machine's name: %w", err)
		}
	}
	return &presence.Publisher{
		Client: typed, Log: env.Log, Namespace: metav1.NamespaceSystem, Service: Name, Manager: Name + ".clusterctl",
		Node: strings.ToLower(name), Addrs: []netip.Addr{addr},
		Ports: []discoveryv1.EndpointPort{
			{Name: ptr.To("https"), Protocol: ptr.To(corev1.ProtocolTCP), Port: &port},
		}, Ready: fresh,
	}, nil
}
