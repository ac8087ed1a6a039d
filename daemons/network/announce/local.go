package announce

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/api/loadbalancer"
	"clusterctl/daemons/client"
	"clusterctl/daemons/client/informers"
	"clusterctl/kube/kubernetes"
)

// localSlices knows which machines have endpoints of Services with externalTrafficPolicy Local. It watches only the
// EndpointSlices of these Services, and nothing if there are none.
type localSlices struct {
	client  kubernetes.Interface
	changed func()

	current, next *slicesWatch
}

// slicesWatch watches the slices of the Services with the given names in all namespaces.
type slicesWatch struct {
	names string // separated by commas
	end   context.CancelFunc
	group sync.WaitGroup
	cache.SharedIndexInformer
}

const serviceIndex = "service"

// watchNeeded watches the slices that are needed. It returns a function for the nodes with ready endpoints of a
// Service. isKnown reports whether the slices are listed.
func (l *localSlices) watchNeeded(ctx context.Context, services []*corev1.Service) (ready localNodes, isKnown bool) {
	names := map[string]bool{}
	for _, s := range services {
		if isLocal(s) && len(loadbalancer.AnnouncedAddresses(s)) > 0 {
			names[s.Name] = true
		}
	}
	if len(names) == 0 {
		l.stop()
		return func(*corev1.Service, netip.Addr) map[string]bool { return nil }, true
	}
	wanted := strings.Join(slices.Sorted(maps.Keys(names)), ",")
	if l.next != nil && l.next.names != wanted {
		l.next.stop()
		l.next = nil
	}
	if l.next == nil && (l.current == nil || l.current.names != wanted) {
		l.next = l.start(ctx, wanted)
	}
	if l.next != nil && l.next.HasSynced() {
		if l.current != nil {
			l.current.stop()
		}
		l.current, l.next = l.next, nil
	}
	if l.current == nil || l.current.names != wanted {
		return nil, false
	}
	return l.current.readyNodes, true
}

func (l *localSlices) start(ctx context.Context, names string) *slicesWatch {
	factory := informers.New(
		l.client,
		informers.WithTransform(client.WithoutManagers),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.LabelSelector = discoveryv1.LabelServiceName + " in (" + names + ")"
		}),
	)
	w := &slicesWatch{names: names, SharedIndexInformer: informers.EndpointSlices(factory).Informer()}
	// An informer that has not been started accepts both.
	_ = w.AddIndexers(cache.Indexers{serviceIndex: func(o any) ([]string, error) {
		s := o.(*discoveryv1.EndpointSlice)
		return []string{s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]}, nil
	}})
	_, _ = w.AddEventHandler(onEachEvent(l.changed))
	ctx, w.end = context.WithCancel(ctx)
	w.group.Go(func() { w.RunWithContext(ctx) })
	w.group.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), w.HasSynced) {
			l.changed()
		}
	})
	return w
}

func (w *slicesWatch) stop() {
	w.end()
	w.group.Wait()
}

func (l *localSlices) stop() {
	for _, w := range []*slicesWatch{l.current, l.next} {
		if w != nil {
			w.stop()
		}
	}
	l.current, l.next = nil, nil
}

// readyNodes returns the nodes that have ready endpoints of a Service, of the family of an address.
func (w *slicesWatch) readyNodes(s *corev1.Service, at netip.Addr) map[string]bool {
	family := discoveryv1.AddressTypeIPv4
	if at.Is6() {
		family = discoveryv1.AddressTypeIPv6
	}
	nodes := map[string]bool{}
	found, _ := w.GetIndexer().ByIndex(serviceIndex, s.Namespace+"/"+s.Name)
	for _, o := range found {
		slice := o.(*discoveryv1.EndpointSlice)
		if slice.AddressType != family {
			continue
		}
		for _, e := range slice.Endpoints {
			if e.NodeName != nil && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
				nodes[*e.NodeName] = true
			}
		}
	}
	return nodes
}
