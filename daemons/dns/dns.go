package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/client"
	"clusterctl/daemons/client/presence"
	"clusterctl/daemons/config"
	"clusterctl/daemons/run"
)

// Run is the name server of one machine. It answers until ctx ends.
func Run(ctx context.Context, cfg config.DNS, env run.Env) error {
	rest, err := client.Config(client.Options{Kubeconfig: cfg.Kubeconfig, APIServers: cfg.APIServers, UserAgent: "dns", Metrics: env.Metrics})
	if err != nil {
		return err
	}
	clients, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return fmt.Errorf("set up the API client: %w", err)
	}
	return serve(ctx, cfg, env, clients)
}

// serve is Run over a given client.
func serve(ctx context.Context, cfg config.DNS, env run.Env, clients kubernetes.Interface) error {
	domain := dns.Fqdn(strings.ToLower(cfg.ClusterDomain))
	zone := NewRecords(domain)
	udp, tcp, err := listen(cfg.BindAddress)
	if err != nil {
		return err
	}
	defer udp.Close()
	defer tcp.Close()
	at := udp.LocalAddr().(*net.UDPAddr).AddrPort()
	servers, err := upstream(cfg.Upstream, "/etc/resolv.conf", isSelf(at))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	h := &handler{zone: zone, domain: domain, forward: newForwarder(servers, newAnswers(time.Now, cfg.CacheTTL, cfg.DenialTTL)), log: env.Log, started: time.Now(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "coredns_dns_responses_total", Help: "Answers by their code."}, []string{"rcode"})}
	env.Metrics.MustRegister(h.requests)
	var synced atomic.Bool
	env.Health.Ready("names", func() error {
		if !synced.Load() {
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
		if err := watch(ctx, clients, zone, func() { synced.Store(true) }); err != nil {
			return err
		}
		return nil
	})
	// Nobody is answered "no such name" because the names are not known yet.
	g.Go(func() error {
		for !synced.Load() {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(5 * time.Millisecond):
			}
		}
		env.Log.Info("answering", "address", at, "domain", domain, "upstream", servers)
		inner, ictx := errgroup.WithContext(ctx)
		for _, s := range []*dns.Server{{PacketConn: udp, Handler: h, UDPSize: dns.DefaultMsgSize}, {Listener: tcp, Handler: h}} {
			inner.Go(s.ActivateAndServe)
			inner.Go(func() error {
				<-ictx.Done()
				stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
				defer cancel()
				_ = s.ShutdownContext(stop)
				return nil
			})
		}
		if cfg.ServiceName != "" {
			p, err := newPublisher(cfg, env, clients, at)
			if err != nil {
				return err
			}
			inner.Go(func() error { p.Run(ictx); return nil })
		}
		return inner.Wait()
	})
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// listen takes the same port for both protocols.
func listen(address string) (net.PacketConn, net.Listener, error) {
	if _, _, err := net.SplitHostPort(address); err != nil {
		address = net.JoinHostPort(strings.Trim(address, "[]"), "53")
	}
	udp, err := net.ListenPacket("udp", address)
	if err != nil {
		return nil, nil, fmt.Errorf("listen for questions: %w", err)
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, nil, err
	}
	port := strconv.Itoa(udp.LocalAddr().(*net.UDPAddr).Port)
	tcp, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		_ = udp.Close()
		return nil, nil, fmt.Errorf("listen for questions: %w", err)
	}
	return udp, tcp, nil
}

// isSelf reports whether questions to an address would come back here.
func isSelf(at netip.AddrPort) func(net.IP) bool {
	own, _ := net.InterfaceAddrs()
	return func(ip net.IP) bool {
		if at.Port() != 53 {
			return false
		}
		if !at.Addr().IsUnspecified() {
			return ip.Equal(at.Addr().AsSlice())
		}
		for _, a := range own {
			if n, ok := a.(*net.IPNet); ok && n.IP.Equal(ip) {
				return true
			}
		}
		return ip.IsLoopback()
	}
}

func newPublisher(cfg config.DNS, env run.Env, clients kubernetes.Interface, at netip.AddrPort) (*presence.Publisher, error) {
	namespace, service, ok := strings.Cut(cfg.ServiceName, "/")
	if !ok {
		return nil, fmt.Errorf("service name %q is not namespace/name", cfg.ServiceName)
	}
	p := &presence.Publisher{Client: clients, Log: env.Log, Namespace: namespace, Service: service, Manager: "dns.clusterctl", Node: cfg.NodeName}
	for _, port := range []discoveryv1.EndpointPort{{Name: ptr.To("dns"), Protocol: ptr.To(corev1.ProtocolUDP)}, {Name: ptr.To("dns-tcp"), Protocol: ptr.To(corev1.ProtocolTCP)}} {
		port.Port = ptr.To(int32(at.Port()))
		p.Ports = append(p.Ports, port)
	}
	if p.Node == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("find the node's name: %w", err)
		}
		p.Node = strings.ToLower(host)
	}
	switch {
	case cfg.NodeIP != "":
		ip, err := netip.ParseAddr(cfg.NodeIP)
		if err != nil {
			return nil, fmt.Errorf("node address: %w", err)
		}
		p.Addr = ip
	case !at.Addr().IsUnspecified():
		p.Addr = at.Addr().Unmap()
	default:
		conn, err := net.Dial("udp4", "192.0.2.1:9") // sends nothing: asks for the route
		if err != nil {
			return nil, fmt.Errorf("find the node's address (set --node-ip): %w", err)
		}
		defer conn.Close()
		p.Addr = conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
	}
	return p, nil
}

const byService = "service"

// watch keeps the zone as the API's services, endpoints and namespaces are, until
// ctx ends. ready is called when all are known.
func watch(ctx context.Context, clients kubernetes.Interface, zone *Records, ready func()) error {
	factory := informers.NewSharedInformerFactoryWithOptions(clients, 0, informers.WithTransform(lean))
	services := factory.Core().V1().Services()
	slices := factory.Discovery().V1().EndpointSlices().Informer()
	namespaces := factory.Core().V1().Namespaces().Informer()
	if err := slices.AddIndexers(cache.Indexers{byService: func(o any) ([]string, error) {
		if s, ok := o.(*discoveryv1.EndpointSlice); ok {
			return []string{s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]}, nil
		}
		return nil, nil
	}}); err != nil {
		return fmt.Errorf("index endpoint slices: %w", err)
	}
	update := func(k Key) {
		s, err := services.Lister().Services(k.Namespace).Get(k.Name)
		if err != nil {
			zone.Set(k, nil)
			return
		}
		found, _ := slices.GetIndexer().ByIndex(byService, k.Namespace+"/"+k.Name)
		eps := make([]*discoveryv1.EndpointSlice, 0, len(found))
		for _, o := range found {
			eps = append(eps, o.(*discoveryv1.EndpointSlice))
		}
		zone.Set(k, NewService(s, eps))
	}
	// Both informers' handlers work out the same record: one at a time.
	serial := make(chan struct{}, 1)
	on := func(f func(any)) cache.ResourceEventHandlerFuncs {
		handle := func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			serial <- struct{}{}
			defer func() { <-serial }()
			f(o)
		}
		return cache.ResourceEventHandlerFuncs{AddFunc: handle, UpdateFunc: func(_, o any) { handle(o) }, DeleteFunc: handle}
	}
	var handled []cache.InformerSynced
	add := func(i cache.SharedIndexInformer, h cache.ResourceEventHandler) error {
		r, err := i.AddEventHandler(h)
		if err == nil {
			handled = append(handled, r.HasSynced)
		}
		return err
	}
	err := errors.Join(
		add(services.Informer(), on(func(o any) {
			if s, ok := o.(*corev1.Service); ok {
				update(Key{s.Namespace, s.Name})
			}
		})),
		add(slices, on(func(o any) {
			if s, ok := o.(*discoveryv1.EndpointSlice); ok && s.Labels[discoveryv1.LabelServiceName] != "" {
				update(Key{s.Namespace, s.Labels[discoveryv1.LabelServiceName]})
			}
		})),
		add(namespaces, on(func(o any) {
			if n, ok := o.(*corev1.Namespace); ok {
				_, there, _ := namespaces.GetStore().GetByKey(n.Name)
				zone.SetNamespace(n.Name, there)
			}
		})))
	if err != nil {
		return fmt.Errorf("watch services: %w", err)
	}
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	if cache.WaitForCacheSync(ctx.Done(), handled...) {
		ready()
	}
	<-ctx.Done()
	return nil
}

// lean keeps of objects what the daemon reads. It leaves what it is given as it is.
func lean(o any) (any, error) {
	switch o := o.(type) {
	case *corev1.Service:
		c := *o
		c.ManagedFields, c.Annotations = nil, nil
		return &c, nil
	case *discoveryv1.EndpointSlice:
		c := *o
		c.ManagedFields, c.Annotations = nil, nil
		return &c, nil
	case *corev1.Namespace:
		c := *o
		c.ManagedFields, c.Annotations = nil, nil
		return &c, nil
	}
	return o, nil
}
