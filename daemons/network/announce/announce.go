// Package announce has this machine answer for addresses of LoadBalancer Services: it puts those on an interface whose
// lease it holds, and tells the neighbours; of those of pools with BGP it has routers told. Which Services get which
// addresses the service controller says; what becomes of packets is the proxy's business.
package announce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client"
	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/config"
	"clusterctl/daemons/floating"
	"clusterctl/daemons/network/bgp"
	"clusterctl/kube/kubernetes"
)

// place is an address on an interface of this machine; floating.Link is one.
type place interface {
	Set(lifetime time.Duration) error
	Remove() error
	Announce() error
	Taken(wait time.Duration) (bool, error)
	Interface() string
}

// Options are what an Announcer is made of.
type Options struct {
	Self   string               // this machine's node
	Client kubernetes.Interface // for what is watched
	Leases kubernetes.Interface
	Failed func(error) error // is told errors of Leases; may be nil
	Nodes  corelisters.NodeLister
	Log    *slog.Logger
	// Memory is a file for the pools that were read last, for a start at which the API has none; "" keeps none. Write
	// puts a file in place at once.
	Memory string
	Write  func(path string, data []byte) error
}

// Announcer holds addresses on this machine.
type Announcer struct {
	Options
	find     func(netip.Addr, []string) (place, error)
	wake     chan struct{}
	services corelisters.ServiceLister
	maps     corelisters.ConfigMapLister
	local    localSlices
	routing  routing
	held     prometheus.Gauge

	known knownPools // for look alone

	mu     sync.Mutex
	duties map[string]Duty // by lease
	pools  []config.Pool
	places map[netip.Addr]found
	counts map[string]int // addresses held, by lease
}

// found is where an address can be, or why nowhere, as of some time.
type found struct {
	place place
	err   error
	at    time.Time
}

// New returns an Announcer whose Metrics are to be registered.
func New(o Options) *Announcer {
	a := &Announcer{
		Options: o,
		wake:    make(chan struct{}, 1),
		duties:  map[string]Duty{},
		places:  map[netip.Addr]found{},
		counts:  map[string]int{},
		find:    func(address netip.Addr, names []string) (place, error) { return floating.Find(address, names) },
		held: prometheus.NewGauge(
			prometheus.GaugeOpts{
				Name: "network_load_balancer_addresses",
				Help: "Addresses of LoadBalancer Services that this machine announces.",
			},
		),
	}
	a.local = localSlices{client: o.Client, changed: a.Poke}
	a.routing.speaker = bgp.New(o.Log)
	return a
}

// Metrics are how many addresses are here, and the sessions with routers.
func (a *Announcer) Metrics() []prometheus.Collector {
	return []prometheus.Collector{a.held, a.routing.speaker.Metrics()}
}

// Poke says that something has changed that decides who may have addresses.
func (a *Announcer) Poke() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// recheck is how often everything is looked at although nothing says that it has changed.
const recheck = 30 * time.Second

// Run announces until ctx ends. The kernel keeps the addresses a moment longer, so that a daemon that comes back, or
// another machine, goes on with them. The cache of Nodes has been filled.
func (a *Announcer) Run(ctx context.Context) error {
	only := func(namespace, field, value string) *informers.Factory {
		return informers.New(
			a.Client,
			informers.WithNamespace(namespace),
			informers.WithTransform(client.WithoutManagers),
			informers.WithTweakListOptions(
				func(o *metav1.ListOptions) { o.FieldSelector = fields.OneTermEqualSelector(field, value).String() },
			),
		)
	}
	balanced, pools := only(
		"",
		"spec.type",
		string(corev1.ServiceTypeLoadBalancer),
	), only(
		metav1.NamespaceSystem,
		metav1.ObjectNameField,
		config.PoolsName,
	)
	services, configMaps := informers.Services(balanced), informers.ConfigMaps(pools)
	a.services, a.maps = services.Lister(), configMaps.Lister()
	for _, informer := range []cache.SharedIndexInformer{services.Informer(), configMaps.Informer()} {
		if _, err := informer.AddEventHandler(tell(a.Poke)); err != nil {
			return fmt.Errorf("watch what is announced: %w", err)
		}
	}
	for _, factory := range []*informers.Factory{balanced, pools} {
		factory.StartWithContext(ctx)
		defer factory.Shutdown()
	}
	if !cache.WaitForCacheSync(ctx.Done(), services.Informer().HasSynced, configMaps.Informer().HasSynced) {
		return nil
	}
	a.recall()
	defer a.local.stop()
	defer a.routing.speaker.Wait()
	k := keepers{ended: make(chan string), running: map[string]chan struct{}{}}
	defer k.group.Wait()
	tick := time.NewTicker(recheck)
	defer tick.Stop()
	for {
		if err := a.look(ctx); err != nil {
			a.Log.Warn("work out which addresses are to be announced", "error", err)
		}
		a.mu.Lock()
		for lease, d := range a.duties {
			if slices.Contains(d.Machines, a.Self) {
				k.start(ctx, a, lease)
			}
		}
		a.mu.Unlock()
		k.wake()
		select {
		case <-ctx.Done():
			return nil
		case <-a.wake:
		case <-tick.C:
		case lease := <-k.ended:
			delete(k.running, lease)
		}
	}
}

// tell has f called with whatever changes.
func tell(f func()) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { f() },
		UpdateFunc: func(any, any) { f() },
		DeleteFunc: func(any) { f() },
	}
}

// keepers are goroutines, one for each lease that this machine may hold.
type keepers struct {
	group   sync.WaitGroup
	running map[string]chan struct{} // what wakes each
	ended   chan string
}

func (k *keepers) start(ctx context.Context, a *Announcer, lease string) {
	if k.running[lease] != nil {
		return
	}
	wake := make(chan struct{}, 1)
	k.running[lease] = wake
	k.group.Go(func() {
		newKeeper(a, lease).run(ctx, wake)
		select {
		case k.ended <- lease:
		case <-ctx.Done():
		}
	})
}

func (k *keepers) wake() {
	for _, wake := range k.running {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// look works out which leases this machine may hold. When something cannot be read, the former duties stay.
func (a *Announcer) look(ctx context.Context) error {
	services, err := a.services.List(labels.Everything())
	if err != nil {
		return err
	}
	nodes, err := a.Nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	pools, err := a.readPools(ctx)
	if err != nil {
		return err
	}
	ready, known := a.local.follow(ctx, services)
	peers := a.routing.divide(pools, services)
	if known {
		a.route(ctx, pools, peers, services, nodes, ready)
	}
	routed := func(at netip.Addr) bool { return len(peers[at]) > 0 }
	duties := map[string]Duty{}
	if !known { // it says when
		services = slices.DeleteFunc(slices.Clone(services), staysLocal)
		a.mu.Lock()
		for lease, d := range a.duties {
			if d.Local {
				duties[lease] = d
			}
		}
		a.mu.Unlock()
	}
	for _, d := range Duties(services, nodes, ready, routed) {
		duties[d.Lease] = d
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.duties, a.pools = duties, pools
	return nil
}

func (a *Announcer) duty(lease string) Duty {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.duties[lease]
}

// elsewhere says whether an address comes with another lease than this one.
func (a *Announcer) elsewhere(lease string, address netip.Addr) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for other, d := range a.duties {
		if other != lease && slices.Contains(d.Addresses, address) {
			return true
		}
	}
	return false
}

// placeFor is how long it is believed where an address can be: interfaces come and go.
const placeFor = 10 * time.Second

// placeOf returns where an address can be on this machine.
func (a *Announcer) placeOf(address netip.Addr) (place, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if f, there := a.places[address]; there && time.Since(f.at) < placeFor {
		return f.place, f.err
	}
	var names []string
	for _, pool := range a.pools {
		if pool.Contains(address) {
			names = pool.Interfaces
		}
	}
	p, err := a.find(address, names)
	if was := a.places[address]; err != nil && (was.err == nil || was.err.Error() != err.Error()) {
		a.Log.Warn("this machine cannot have an address of a service", "address", address, "error", err)
	}
	for other, f := range a.places {
		if time.Since(f.at) > 10*placeFor {
			delete(a.places, other)
		}
	}
	a.places[address] = found{p, err, time.Now()}
	return p, err
}

// forget has it looked anew where an address can be.
func (a *Announcer) forget(address netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.places, address)
}

func (a *Announcer) count(lease string, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.counts[lease] = n; n == 0 {
		delete(a.counts, lease)
	}
	all := 0
	for _, n := range a.counts {
		all += n
	}
	a.held.Set(float64(all))
}

// errLost says that a lease cannot be renewed because another machine has taken it.
var errLost = errors.New("somebody else has written the lease")
