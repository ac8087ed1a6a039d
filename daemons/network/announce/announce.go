// Package announce makes this machine reachable at addresses of LoadBalancer Services. It puts an address on an
// interface while it holds the address's lease, and announces that to the neighbours. Addresses of pools with BGP are
// announced to routers instead. The service controller assigns the addresses to Services. The service proxy handles
// their packets.
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

// addressPlace is an address on an interface of this machine. floating.Link implements it.
type addressPlace interface {
	Set(lifetime time.Duration) error
	Remove() error
	Announce() error
	IsTaken(wait time.Duration) (bool, error)
	Interface() string
}

// Options configures an Announcer.
type Options struct {
	Self         string               // node name of this machine
	Client       kubernetes.Interface // for watches
	Leases       kubernetes.Interface
	OnLeaseError func(error) error // receives errors of Leases; may be nil
	Nodes        corelisters.NodeLister
	Log          *slog.Logger
	// PoolsFile is the file of the last known pools, for a start while the API has none; "" disables it. WriteFile
	// replaces a file atomically.
	PoolsFile string
	WriteFile func(path string, data []byte) error
}

// Announcer announces addresses on this machine.
type Announcer struct {
	Options
	find       func(netip.Addr, []string) (addressPlace, error)
	wake       chan struct{}
	services   corelisters.ServiceLister
	configMaps corelisters.ConfigMapLister
	local      localSlices
	routing    routing
	heldGauge  prometheus.Gauge

	knownPools knownPools // used only by updateDuties

	mu         sync.Mutex
	duties     map[string]Duty // by lease name
	pools      []config.Pool
	places     map[netip.Addr]cachedPlace
	heldCounts map[string]int // number of held addresses by lease name
}

// cachedPlace is a cached result of looking for an address's interface, and its time.
type cachedPlace struct {
	place addressPlace
	err   error
	at    time.Time
}

// New returns an Announcer. The caller registers its Metrics.
func New(o Options) *Announcer {
	a := &Announcer{
		Options:    o,
		wake:       make(chan struct{}, 1),
		duties:     map[string]Duty{},
		places:     map[netip.Addr]cachedPlace{},
		heldCounts: map[string]int{},
		find: func(address netip.Addr,
			names []string) (addressPlace, error) {
			return floating.Find(address, names)
		},
		heldGauge: prometheus.NewGauge(
			prometheus.GaugeOpts{
				Name: "network_load_balancer_addresses",
				Help: "Addresses of LoadBalancer Services that this machine announces.",
			},
		),
	}
	a.local = localSlices{client: o.Client, changed: a.Wake}
	a.routing.speaker = bgp.New(o.Log)
	return a
}

// Metrics returns the collectors of the number of held addresses and of the sessions with routers.
func (a *Announcer) Metrics() []prometheus.Collector {
	return []prometheus.Collector{a.heldGauge, a.routing.speaker.Metrics()}
}

// Wake signals that an object has changed that affects which machines may hold addresses.
func (a *Announcer) Wake() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// recheckInterval is how often all duties are recomputed without a change.
const recheckInterval = 30 * time.Second

// Run announces addresses until ctx ends. The kernel keeps the addresses a little longer, so that a restarted daemon or
// another machine can continue. The cache of Nodes must be synced before.
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
	balanced, pools := only("", "spec.type", string(corev1.ServiceTypeLoadBalancer)), only(metav1.NamespaceSystem,
		metav1.ObjectNameField, config.PoolsName)
	services, configMaps := informers.Services(balanced), informers.ConfigMaps(pools)
	a.services, a.configMaps = services.Lister(), configMaps.Lister()
	for _, informer := range []cache.SharedIndexInformer{services.Informer(), configMaps.Informer()} {
		if _, err := informer.AddEventHandler(onEachEvent(a.Wake)); err != nil {
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
	a.loadPools()
	defer a.local.stop()
	defer a.routing.speaker.Wait()
	k := leaseKeepers{ended: make(chan string), running: map[string]chan struct{}{}}
	defer k.group.Wait()
	tick := time.NewTicker(recheckInterval)
	defer tick.Stop()
	for {
		if err := a.updateDuties(ctx); err != nil {
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

// onEachEvent returns an event handler that calls f for every event.
func onEachEvent(f func()) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { f() },
		UpdateFunc: func(any, any) { f() },
		DeleteFunc: func(any) { f() },
	}
}

// leaseKeepers holds the goroutines of the leases that this machine may hold.
type leaseKeepers struct {
	group   sync.WaitGroup
	running map[string]chan struct{} // wakes the goroutine, by lease name
	ended   chan string
}

func (k *leaseKeepers) start(ctx context.Context, a *Announcer, lease string) {
	if k.running[lease] != nil {
		return
	}
	wake := make(chan struct{}, 1)
	k.running[lease] = wake
	k.group.Go(func() {
		newLeaseKeeper(a, lease).run(ctx, wake)
		select {
		case k.ended <- lease:
		case <-ctx.Done():
		}
	})
}

func (k *leaseKeepers) wake() {
	for _, wake := range k.running {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// updateDuties recomputes which leases this machine may hold. If an input cannot be read, the previous duties stay.
func (a *Announcer) updateDuties(ctx context.Context) error {
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
	ready, ok := a.local.watchNeeded(ctx, services)
	peers := a.routing.routedAddresses(pools, services)
	if ok {
		a.updateSessions(ctx, pools, peers, services, nodes, ready)
	}
	routed := func(at netip.Addr) bool { return len(peers[at]) > 0 }
	duties := map[string]Duty{}
	if !ok { // duties of Local Services stay as they are
		services = slices.DeleteFunc(slices.Clone(services), isLocal)
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

// isOnOtherLease reports whether an address belongs to another lease than the given one.
func (a *Announcer) isOnOtherLease(lease string, address netip.Addr) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for other, d := range a.duties {
		if other != lease && slices.Contains(d.Addresses, address) {
			return true
		}
	}
	return false
}

// placeCacheTime is how long the interface of an address is cached, because interfaces come and go.
const placeCacheTime = 10 * time.Second

// placeOf returns where an address can be placed on this machine.
func (a *Announcer) placeOf(address netip.Addr) (addressPlace, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if f, ok := a.places[address]; ok && time.Since(f.at) < placeCacheTime {
		return f.place, f.err
	}
	var names []string
	for _, pool := range a.pools {
		if pool.Contains(address) {
			names = pool.Interfaces
		}
	}
	p, err := a.find(address, names)
	if before := a.places[address]; err != nil && (before.err == nil || before.err.Error() != err.Error()) {
		a.Log.Warn("this machine cannot have an address of a service", "address", address, "error", err)
	}
	for other, f := range a.places {
		if time.Since(f.at) > 10*placeCacheTime {
			delete(a.places, other)
		}
	}
	a.places[address] = cachedPlace{p, err, time.Now()}
	return p, err
}

// dropPlace drops the cached interface of an address.
func (a *Announcer) dropPlace(address netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.places, address)
}

func (a *Announcer) setHeldCount(lease string, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.heldCounts[lease] = n; n == 0 {
		delete(a.heldCounts, lease)
	}
	all := 0
	for _, n := range a.heldCounts {
		all += n
	}
	a.heldGauge.Set(float64(all))
}

// errLeaseLost reports that another machine has taken the lease, so that it cannot be renewed.
var errLeaseLost = errors.New("another process has written the lease")
