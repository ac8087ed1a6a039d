package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client"
	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/config"
	"clusterctl/daemons/floating"
	"clusterctl/daemons/network/announce"
	"clusterctl/daemons/network/link"
	"clusterctl/daemons/network/policy"
	"clusterctl/daemons/nft/kernel"
	"clusterctl/daemons/run"
	"clusterctl/daemons/run/reconcile"
	"clusterctl/kube/kubernetes"
)

const (
	confName = "10-clusterctl.conflist"
	// admittedName is the file of admitted pods, next to the socket.
	admittedName = "admitted-pods.json"
	// poolsName is the file of the last known load balancer pools, next to the socket.
	poolsName = "address-pools.json"
	// syncInterval is how often the machine is checked without an event. The kernel sends no event for routes that
	// disappear together with their link.
	syncInterval = time.Minute
	// checkInterval is how often masquerading and forwarding are checked in the kernel, because without them pods
	// cannot reach anything outside.
	checkInterval = 2 * time.Second
)

// daemon is the network daemon of one machine.
type daemon struct {
	cfg       config.Network
	env       run.Env
	name      string
	client    kubernetes.Interface
	nodes     corelisters.NodeLister
	condition nodeCondition
	machines  machineInventory               // inventory of all machines, including those without a Node
	pods      atomic.Pointer[[]netip.Prefix] // networks of this machine's pods, once known
	hasBridge bool                           // pods of an earlier release may still use its bridge
	filters   packetFilters
	reports   routeReports
	isReady   atomic.Bool         // the network is set up
	changes   reconcile.Signal    // wakes the loop
	policies  *policyEnforcer     // nil on a machine without pods
	announcer *announce.Announcer // nil on a machine without pods
}

// Run maintains this machine's part of the pod network until ctx ends. It leaves the network in place, so that pods
// keep working.
func Run(ctx context.Context, cfg config.Network, env run.Env) error {
	d := &daemon{cfg: cfg, env: env, name: cfg.HostnameOverride, hasBridge: true, changes: reconcile.NewSignal()}
	if d.name == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("find the node's name: %w", err)
		}
		d.name = strings.ToLower(host)
	}
	for _, s := range cfg.ClusterCIDR {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return fmt.Errorf("cluster CIDR: %w", err)
		}
		d.filters.clusters = append(d.filters.clusters, p.Masked())
	}
	for _, s := range cfg.Exceptions {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return fmt.Errorf("masquerade exceptions: %w", err)
		}
		d.filters.exceptions = append(d.filters.exceptions, p.Masked())
	}
	rest, err := client.Config(
		client.Options{
			Kubeconfig: cfg.Kubeconfig,
			APIServers: cfg.APIServers,
			UserAgent:  "network",
			Metrics:    env.Metrics,
		},
	)
	if err != nil {
		return err
	}
	if d.client, err = kubernetes.NewForConfig(rest); err != nil {
		return fmt.Errorf("set up the API client: %w", err)
	}
	d.filters.log, d.reports = env.Log, newRouteReports(d.name, env.Log)
	env.Metrics.MustRegister(d.reports.routes, d.reports.unlisted)
	env.Health.AddReady("network", func() error {
		if !d.isReady.Load() {
			return errors.New("the node's pod network is not there yet")
		}
		return nil
	})
	if !cfg.RoutesOnly {
		machine, err := d.nodeClient()
		if err != nil {
			return err
		}
		d.condition = nodeCondition{client: machine, now: time.Now}
		d.policies = newPolicyEnforcer(d.client, machine, d.name, env.Log,
			func() tableWriter { return &kernel.Kernel{} })
		env.Metrics.MustRegister(d.policies.metrics.duration, d.policies.metrics.waiting)
		env.Health.AddReady("policies", d.policies.checkReady)
	}
	g, ctx := errgroup.WithContext(ctx)
	if cfg.HealthAddress != "" {
		ln, err := net.Listen("tcp", cfg.HealthAddress)
		if err != nil {
			return fmt.Errorf("listen for health checks: %w", err)
		}
		g.Go(func() error { return run.Serve(ctx, ln, env.Local(), nil, time.Second, env.Log) })
	}
	if d.policies != nil {
		g.Go(func() error { return d.runPolicies(ctx) })
	}
	g.Go(func() error { return d.run(ctx) })
	return g.Wait()
}

// nodeClient returns a client with the credentials of the machine's node if they are configured, otherwise the daemon's
// own client.
func (d *daemon) nodeClient() (kubernetes.Interface, error) {
	if d.cfg.NodeKubeconfig == "" {
		return d.client, nil
	}
	rest, err := client.Config(
		client.Options{Kubeconfig: d.cfg.NodeKubeconfig, APIServers: d.cfg.APIServers, UserAgent: "network"},
	)
	if err != nil {
		return nil, err
	}
	as, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return nil, fmt.Errorf("set up the API client of the node: %w", err)
	}
	return as, nil
}

// runPolicies maintains the rules of network policies, and serves the kubelet's admission requests.
func (d *daemon) runPolicies(ctx context.Context) error {
	p := d.policies
	p.admitted.file = filepath.Join(filepath.Dir(d.cfg.PolicySocket), admittedName)
	if err := p.admitted.load(); err != nil {
		d.env.Log.Warn("the file of admitted pods cannot be read; pods whose addresses the API does not know yet stay "+
			"cut off until the kubelet asks for them again", "error", err)
	}
	ln, err := openSocket(d.cfg.PolicySocket)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.admitted.serve(ctx, ln, d.env.Log) })
	g.Go(func() error { return p.run(ctx) })
	return g.Wait()
}

func (d *daemon) run(ctx context.Context) error {
	if !d.cfg.RoutesOnly {
		var err error
		if d.filters.masquerade, err = newMasquerade(d.filters.clusters, d.filters.exceptions); err != nil {
			return err
		}
		d.filters.others.clusters = d.filters.clusters
		if err := errors.Join(enableForwarding(d.filters.clusters), disableRouterAdvertisements(),
			d.filters.restoreAnswerMarks()); err != nil {
			return err
		}
	}
	factory := informers.New(d.client, informers.WithTransform(trimNode))
	nodes := informers.Nodes(factory)
	d.nodes = nodes.Lister()
	if !d.cfg.RoutesOnly {
		if err := d.newAnnouncer(nodes.Informer()); err != nil {
			return err
		}
	}
	if _, err := nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { d.changes.Wake() },
		DeleteFunc: func(any) { d.changes.Wake() },
		UpdateFunc: func(before, after any) {
			if isRelevantUpdate(before.(*corev1.Node), after.(*corev1.Node)) {
				d.changes.Wake()
			}
		},
	}); err != nil {
		return fmt.Errorf("watch nodes: %w", err)
	}
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	if !cache.WaitForCacheSync(ctx.Done(), nodes.Informer().HasSynced) {
		return nil
	}
	following, stop := context.WithCancel(ctx)
	var follower sync.WaitGroup
	defer follower.Wait()
	defer stop()
	follower.Go(func() { watchMachine(following, d.env.Log, d.isPodAddress, d.changes.Wake) })
	if !d.cfg.RoutesOnly {
		follower.Go(func() { d.filters.restoreLoop(following, checkInterval) })
		follower.Go(func() { d.reportDropped(following, checkInterval) })
		follower.Go(func() {
			if err := d.announcer.Run(following); err != nil {
				d.env.Log.Error("addresses of services are not announced by this machine", "error", err)
			}
		})
	}
	if err := d.machines.watch(following, d.client, d.env.Log, d.changes.Wake); err != nil {
		return err
	}
	defer d.machines.stop()
	l := reconcile.Loop{
		Log:           d.env.Log,
		Action:        "set up the pod network",
		Changes:       d.changes,
		Sync:          d.sync,
		CheckInterval: syncInterval,
	}
	l.Run(ctx)
	return nil
}

// newAnnouncer sets up the announcement of Services' addresses on this machine.
func (d *daemon) newAnnouncer(nodes cache.SharedIndexInformer) error {
	leases, err := floating.Connect(
		client.Options{Kubeconfig: d.cfg.Kubeconfig, APIServers: d.cfg.APIServers, UserAgent: "network"},
	)
	if err != nil {
		return err
	}
	d.announcer = announce.New(
		announce.Options{
			Self:         d.name,
			Client:       d.client,
			Leases:       leases,
			OnLeaseError: leases.CloseIdleOnError,
			Nodes:        d.nodes,
			Log:          d.env.Log,
			PoolsFile:    filepath.Join(filepath.Dir(d.cfg.PolicySocket), poolsName),
			WriteFile:    writeFile,
		},
	)
	d.env.Metrics.MustRegister(d.announcer.Metrics()...)
	_, err = nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { d.announcer.Wake() },
		DeleteFunc: func(any) { d.announcer.Wake() },
		UpdateFunc: func(before, after any) {
			if announce.IsRelevantUpdate(before.(*corev1.Node), after.(*corev1.Node)) {
				d.announcer.Wake()
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch nodes: %w", err)
	}
	return nil
}

// trimNode removes the fields of a node that the daemon does not read.
func trimNode(o any) (any, error) {
	if n, ok := o.(*corev1.Node); ok {
		c := *n
		c.ManagedFields, c.Annotations = nil, nil
		c.Status.Images, c.Status.VolumesAttached = nil, nil
		return &c, nil
	}
	return o, nil
}

// isRelevantUpdate reports whether an update of a node affects routes.
func isRelevantUpdate(before, after *corev1.Node) bool {
	return !slices.Equal(before.Spec.PodCIDRs, after.Spec.PodCIDRs) || before.Spec.PodCIDR != after.Spec.PodCIDR ||
		!slices.Equal(before.Status.Addresses, after.Status.Addresses)
}

// sync updates this machine's network according to the nodes.
func (d *daemon) sync(ctx context.Context) error {
	nodes, err := d.nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	plan := NewPlan(d.name, nodes)
	plan.Callers = findPodless(d.name, d.machines.list(d.env.Log), nodes)
	if d.cfg.RoutesOnly {
		if _, _, err := d.newRouteApplier().apply(d.name, &plan); err != nil {
			return err
		}
		d.reports.logUnanswered(plan.isUnanswered())
		d.reports.logUnlisted(plan.Unlisted)
		d.reports.routes.Set(float64(len(plan.Routes)))
		d.isReady.Store(true)
		return nil
	}
	if len(plan.PodCIDRs) == 0 {
		d.env.Log.Debug("waiting for the node's pod network", "node", d.name)
		return d.writeCondition(ctx, plan, 0)
	}
	d.pods.Store(&plan.PodCIDRs)
	d.passMachine(plan.PodCIDRs)
	self, err := d.nodes.Get(d.name)
	if err != nil {
		return err
	}
	largest, made, failed := d.newRouteApplier().apply(d.name, &plan)
	d.reports.logUnlisted(plan.Unlisted)
	failed = errors.Join(failed, d.filters.restoreAnswerMarks())
	conf, err := Conflist(plan.PodCIDRs, podMTU(d.cfg.MTU, mtuOf(internalIPs(self)), largest))
	if err != nil {
		return err
	}
	if failed != nil {
		// Pods of this node can run anyway.
		d.env.Log.Warn("routes to other nodes are missing", "error", failed)
		defer time.AfterFunc(5*time.Second, d.changes.Wake)
	}
	d.reports.routes.Set(float64(len(plan.Routes)))
	if err := writeFile(filepath.Join(d.cfg.CNIConfDir, confName), conf); err != nil {
		return err
	}
	// New pods do not use the bridge, because the configuration no longer names it.
	if d.hasBridge, err = retireBridge(plan.PodCIDRs); err != nil {
		d.env.Log.Warn("the bridge of a former release could not be set up; replace the pods on it if they cannot be "+
			"reached or are not filtered", "error", err)
	}
	d.passMachine(plan.PodCIDRs)
	if !d.isReady.Load() {
		// The kubelet reports the node as ready once its runtime has read this configuration.
		d.env.Log.Info("pod network is there", "node", d.name, "pods", plan.PodCIDRs, "routes", len(plan.Routes))
	}
	d.isReady.Store(true)
	return d.writeCondition(ctx, plan, made)
}

// writeCondition updates the node's condition NetworkUnavailable if the Node exists.
func (d *daemon) writeCondition(ctx context.Context, p Plan, made int) error {
	self, err := d.nodes.Get(d.name)
	if err != nil {
		return nil // there is no Node to update
	}
	err = d.condition.writeNetwork(ctx, self, p, made)
	if !d.condition.missingSince.IsZero() {
		time.AfterFunc(missingTolerance, d.changes.Wake)
	}
	return err
}

// reportDropped writes the packet rules of other programs that drop packets of pods to the node's condition. It runs in
// its own goroutine, so that a slow API server does not delay the repair of rules.
func (d *daemon) reportDropped(ctx context.Context, every time.Duration) {
	wait := time.NewTimer(every)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wait.C:
		}
		wait.Reset(every)
		self, err := d.nodes.Get(d.name)
		if err != nil {
			continue // the Node does not exist yet
		}
		problems := d.filters.others.foundProblems()
		if err := d.condition.writeDropped(ctx, self, problems); err != nil && ctx.Err() == nil {
			d.env.Log.Warn("report packet rules of other programs", "error", err)
			wait.Reset(writeTimeout)
		}
	}
}

// passMachine passes the interfaces and networks of this machine's pods to the policies.
func (d *daemon) passMachine(pods []netip.Prefix) {
	m := policy.Machine{Networks: pods, Links: []string{link.Prefix}}
	if d.hasBridge {
		m.Links = append(m.Links, formerBridge)
	}
	d.policies.pending.setMachine(m)
}
