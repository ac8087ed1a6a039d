package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/api/peers"
	"clusterctl/daemons/network/policy"
	"clusterctl/kube/kubernetes"
)

const (
	// maxWatches limits the number of concurrent watches. A new group first gets its own watch, so that the other
	// groups need not be listed again. Beyond the limit, one watch replaces all.
	maxWatches = 8
	// maxNamed limits how many groups a watch selects by name. A watch of more groups follows all groups.
	maxNamed = 500
)

// groups watches the addresses of the groups that this machine's rules need.
type groups struct {
	client   kubernetes.Interface
	log      *slog.Logger
	note     func(slice string) // called with the name of a slice that may have changed
	look     func()             // called when a watch has listed
	current  []*groupWatch
	next     *groupWatch           // has not finished listing
	replaces bool                  // next replaces all current watches
	told     map[string]heardSlice // slices passed to the rules, by name
}

// groupWatch is one watch.
type groupWatch struct {
	names map[string]bool
	end   func()

	mu     sync.Mutex
	listed bool
	slices map[string]*heardSlice
	note   func(string)
	look   func()
}

type heardSlice struct {
	group string
	slice *policy.Slice // nil if the rules need not keep it
}

// follow starts the watches of needed groups, and passes the slices of newly listed watches to the rules. It reports
// whether it passed any.
func (g *groups) follow(ctx context.Context, needed map[string]bool, node *policy.Node) (told bool, err error) {
	if g.next != nil && g.next.complete() {
		told = true
		if err := g.take(node); err != nil {
			return told, err
		}
	}
	if g.next != nil {
		return told, nil // wait for it, because it may cover the missing groups
	}
	covered := g.covered()
	missing := map[string]bool{}
	for name := range needed {
		if !covered[name] {
			missing[name] = true
		}
	}
	switch {
	case len(needed) == 0 && len(g.current) > 0:
		g.close()
		var failures []error
		for key := range g.told {
			failures = append(failures, g.tell(node, key))
		}
		node.Hear(nil)
		return true, errors.Join(failures...)
	case len(missing) > 0 && len(g.current) < maxWatches:
		g.next, g.replaces = g.start(ctx, missing), false
	case len(missing) > 0 || len(covered) > 2*len(needed)+16:
		g.next, g.replaces = g.start(ctx, maps.Clone(needed)), true
	}
	return told, nil
}

// take makes the next watch a current one. If it replaces the others, take stops them.
func (g *groups) take(node *policy.Node) error {
	w := g.next
	if g.replaces {
		for _, w := range g.current {
			w.end()
		}
		g.current = nil
	}
	g.current, g.next = append(g.current, w), nil
	keys := w.keys()
	if g.replaces {
		keys = append(keys, slices.Collect(maps.Keys(g.told))...)
	}
	var failures []error
	for _, key := range keys {
		failures = append(failures, g.tell(node, key))
	}
	node.Hear(g.covered())
	return errors.Join(failures...)
}

// covered returns the groups that the current watches have listed.
func (g *groups) covered() map[string]bool {
	names := map[string]bool{}
	for _, w := range g.current {
		maps.Copy(names, w.names)
	}
	return names
}

// tell passes the current state of a slice to the rules. The slices of groups that are no longer watched stay while a
// rule still needs them.
func (g *groups) tell(node *policy.Node, key string) error {
	var is *heardSlice
	for _, w := range g.current {
		if s := w.get(key); s != nil && w.names[s.group] {
			is = s
		}
	}
	was, there := g.told[key]
	switch {
	case there && is == nil && node.Needed()[was.group] && !g.covered()[was.group]:
		g.told[key] = heardSlice{group: was.group}
		return nil
	case there && (is == nil || is.group != was.group):
		delete(g.told, key)
		if err := node.SetSlice(was.group, key, nil); err != nil {
			return fmt.Errorf("take away the addresses of %s: %w", key, err)
		}
	case there && was.slice.Equal(is.slice):
		return nil
	}
	if is == nil {
		return nil
	}
	g.told[key] = *is
	if err := node.SetSlice(is.group, key, is.slice); err != nil {
		return fmt.Errorf("put the addresses of %s: %w", key, err)
	}
	return nil
}

// close stops all watches.
func (g *groups) close() {
	for _, w := range g.current {
		w.end()
	}
	if g.next != nil {
		g.next.end()
	}
	g.current, g.next = nil, nil
}

// start starts a watch of groups.
func (g *groups) start(ctx context.Context, names map[string]bool) *groupWatch {
	ctx, cancel := context.WithCancel(ctx)
	w := &groupWatch{names: names, slices: map[string]*heardSlice{}, note: g.note, look: g.look}
	selector := selectorOf(names)
	api := g.client.DiscoveryV1().EndpointSlices(peers.Namespace)
	lists := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = selector
			return api.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selector
			return api.Watch(ctx, o)
		},
	}
	r := cache.NewReflectorWithOptions(
		cache.ToListWatcherWithWatchListSemantics(lists, g.client),
		&discoveryv1.EndpointSlice{},
		w,
		cache.ReflectorOptions{Name: "peers of network policies"},
	)
	var running sync.WaitGroup
	running.Go(func() { r.RunWithContext(ctx) })
	w.end = func() { cancel(); running.Wait() }
	g.log.Debug("watching peers of network policies", "groups", len(names))
	return w
}

// selectorOf returns the selector of the slices of groups.
func selectorOf(names map[string]bool) string {
	op, values := selection.In, slices.Sorted(maps.Keys(names))
	if len(names) > maxNamed {
		op, values = selection.Exists, nil
	}
	r, err := labels.NewRequirement(peers.Label, op, values)
	if err != nil {
		panic(err) // group names are valid label values
	}
	return labels.NewSelector().Add(*r).String()
}

// complete reports whether the watch has finished its list.
func (w *groupWatch) complete() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.listed
}

func (w *groupWatch) get(key string) *heardSlice {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.slices[key]
}

func (w *groupWatch) keys() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.slices))
}

// hear returns the slice's name and contents. It ignores slices of other writers, which could otherwise add themselves
// to a policy's peers.
func hear(o any) (key string, s *heardSlice) {
	es, ok := o.(*discoveryv1.EndpointSlice)
	if !ok {
		return "", nil
	}
	group := es.Labels[peers.Label]
	if group == "" || es.Labels[discoveryv1.LabelManagedBy] != peers.Manager {
		return es.Name, nil
	}
	return es.Name, &heardSlice{strings.Clone(group), policy.SliceOf(es)}
}

// Add and the following methods implement the store of a reflector.
func (w *groupWatch) Add(o any) error {
	key, s := hear(o)
	w.mu.Lock()
	if s == nil {
		delete(w.slices, key)
	} else {
		w.slices[key] = s
	}
	w.mu.Unlock()
	w.note(key)
	return nil
}

// Update stores the new state of a slice.
func (w *groupWatch) Update(o any) error { return w.Add(o) }

// Delete removes a slice.
func (w *groupWatch) Delete(o any) error {
	if es, ok := o.(*discoveryv1.EndpointSlice); ok {
		w.mu.Lock()
		delete(w.slices, es.Name)
		w.mu.Unlock()
		w.note(es.Name)
	}
	return nil
}

// Replace stores a complete list.
func (w *groupWatch) Replace(list []any, _ string) error {
	all := map[string]*heardSlice{}
	for _, o := range list {
		if key, s := hear(o); s != nil {
			all[key] = s
		}
	}
	w.mu.Lock()
	was := w.slices
	w.slices, w.listed = all, true
	w.mu.Unlock()
	for _, keys := range []map[string]*heardSlice{was, all} {
		for key := range keys {
			w.note(key)
		}
	}
	w.look()
	return nil
}

// Resync does nothing, because no event is missed.
func (w *groupWatch) Resync() error { return nil }
