package dns

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/config"
	"clusterctl/kube/kubernetes"
)

// clients decides which clients are answered: the cluster's pods, its machines, and the configured networks. Other
// clients would learn the cluster's names, and could use this server as an open resolver.
type clients struct {
	networks       []netip.Prefix
	localAddresses atomic.Pointer[map[netip.Addr]bool] // this machine's addresses, which its Node may not list
	// machines holds the addresses of the cluster's machines according to their Nodes; nil until these were read.
	machines       atomic.Pointer[map[netip.Addr]bool]
	isUnrestricted bool // the pod networks are unknown, so all clients are answered
}

func newClients(cfg config.DNS) (*clients, error) {
	c := &clients{isUnrestricted: len(cfg.ClusterCIDR) == 0 && len(cfg.AllowedClients) == 0}
	for _, list := range [][]string{cfg.ClusterCIDR, cfg.ServiceClusterIPRange, cfg.AllowedClients} {
		for _, text := range list {
			p, err := netip.ParsePrefix(text)
			if err != nil {
				return nil, fmt.Errorf("network %q: %w", text, err)
			}
			c.networks = append(c.networks, p.Masked())
		}
	}
	return c, c.readLocalAddresses()
}

// verdict is the decision about a client.
type verdict int

const (
	clientAllowed verdict = iota
	clientRefused         // its queries are refused
	// clientUnknown may be a machine of the cluster whose Node is not known yet. It gets no answer, so that it asks
	// again.
	clientUnknown
)

// verdict returns the verdict about a client. Pods and this machine are known from the start, even without the API
// server.
func (c *clients) verdict(a netip.Addr) verdict {
	if c.isUnrestricted {
		return clientAllowed
	}
	a = a.Unmap()
	for _, p := range c.networks {
		if p.Contains(a) {
			return clientAllowed
		}
	}
	machines := c.machines.Load()
	switch {
	case a.IsLoopback(), (*c.localAddresses.Load())[a], machines != nil && (*machines)[a]:
		return clientAllowed
	case machines == nil:
		return clientUnknown
	}
	return clientRefused
}

// setMachines stores the addresses of the cluster's machines.
func (c *clients) setMachines(nodes []any) {
	machines := map[netip.Addr]bool{}
	for _, o := range nodes {
		n, ok := o.(*corev1.Node)
		if !ok {
			continue
		}
		for _, at := range n.Status.Addresses {
			if a, err := netip.ParseAddr(at.Address); err == nil {
				machines[a.Unmap()] = true
			}
		}
	}
	c.machines.Store(&machines)
}

// readLocalAddresses stores the addresses of this machine.
func (c *clients) readLocalAddresses() error {
	own, err := ownAddresses()
	if err != nil {
		return err
	}
	c.localAddresses.Store(&own)
	return nil
}

func ownAddresses() (map[netip.Addr]bool, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list this machine's addresses: %w", err)
	}
	own := map[netip.Addr]bool{}
	for _, at := range all {
		if n, ok := at.(*net.IPNet); ok {
			if a, ok := netip.AddrFromSlice(n.IP); ok {
				own[a.Unmap()] = true
			}
		}
	}
	return own, nil
}

// localAddressInterval is how often this machine's addresses are read.
const localAddressInterval = 10 * time.Second

// watchNodes keeps the addresses of the cluster's machines up to date until ctx ends.
func (c *clients) watchNodes(ctx context.Context, api kubernetes.Interface, log *slog.Logger) error {
	if c.isUnrestricted {
		<-ctx.Done()
		return nil
	}
	factory := informers.New(api, informers.WithTransform(trimNode))
	nodes := informers.Nodes(factory).Informer()
	changed := make(chan struct{}, 1)
	note := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	if _, err := nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { note() },
		DeleteFunc: func(any) { note() },
		UpdateFunc: func(before, after any) {
			a, _ := before.(*corev1.Node)
			b, _ := after.(*corev1.Node)
			if a == nil || b == nil || !sameAddresses(a, b) {
				note()
			}
		},
	}); err != nil {
		return fmt.Errorf("watch nodes: %w", err)
	}
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	synced := make(chan struct{})
	var waiting sync.WaitGroup
	defer waiting.Wait()
	waiting.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), nodes.HasSynced) {
			close(synced)
		}
	})
	again := time.NewTicker(localAddressInterval)
	defer again.Stop()
	isKnown := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
			if err := c.readLocalAddresses(); err != nil {
				log.Warn("clients on this machine may be refused", "error", err)
			}
			continue
		case <-synced:
			isKnown, synced = true, nil
		case <-changed:
		}
		if isKnown { // an incomplete list would drop machines
			c.setMachines(nodes.GetStore().List())
		}
	}
}

// trimNode copies a node with only its addresses.
func trimNode(o any) (any, error) {
	if n, ok := o.(*corev1.Node); ok {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: n.Name, ResourceVersion: n.ResourceVersion},
			Status:     corev1.NodeStatus{Addresses: n.Status.Addresses},
		}, nil
	}
	return o, nil
}

func sameAddresses(a, b *corev1.Node) bool {
	return slices.Equal(a.Status.Addresses, b.Status.Addresses)
}
