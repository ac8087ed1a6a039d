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

// groupWatches watches the addresses of the groups that this machine's rules need.
type groupWatches struct {
	client        kubernetes.Interface
	log           *slog.Logger
	sliceChanged  func(slice string) // called with the name of a slice that may have changed
	listed        func()             // called when a watch has listed
	current       []*groupWatch
	next          *groupWatch             // has not finished listing
	isReplacement bool                    // next replaces all current watches
	passedSlices  map[string]watchedSlice // slices passed to the rules, by name
}

// groupWatch is one watch.
type groupWatch struct {
	names map[string]bool
	stop  func()

	mu           sync.Mutex
	listed       bool
	slices       map[string]*watchedSlice
	sliceChanged func(string)
	onListed     func()
}

type watchedSlice struct {
	group string
	slice *policy.Slice // nil if the rules need not keep it
}

// watchNeeded starts the watches of needed groups, and passes the slices of newly listed watches to the rules. It
// reports whether it passed any.
func (g *groupWatches) watchNeeded(ctx context.Context, needed map[string]bool, node *policy.Node) (changed bool,
	err error) {
	if g.next != nil && g.next.isComplete() {
		changed = true
		if err := g.promoteNext(node); err != nil {
			return changed, err
		}
	}
	if g.next != nil {
		return changed, nil // wait for it, because it may cover the missing groups
	}
	covered := g.listedGroups()
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
		for key := range g.passedSlices {
			failures = append(failures, g.passSlice(node, key))
		}
		node.SetKnownGroups(nil)
		return true, errors.Join(failures...)
	case len(missing) > 0 && len(g.current) < maxWatches:
		g.next, g.isReplacement = g.start(ctx, missing), false
	case len(missing) > 0 || len(covered) > 2*len(needed)+16:
		g.next, g.isReplacement = g.start(ctx, maps.Clone(needed)), true
	}
	return changed, nil
}

// promoteNext makes the next watch a current one. If it replaces the others, take stops them.
func (g *groupWatches) promoteNext(node *policy.Node) error {
	w := g.next
	if g.isReplacement {
		for _, w := range g.current {
			w.stop()
		}
		g.current = nil
	}
	g.current, g.next = append(g.current, w), nil
	keys := w.keys()
	if g.isReplacement {
		keys = append(keys, slices.Collect(maps.Keys(g.passedSlices))...)
	}
	var failures []error
	for _, key := range keys {
		failures = append(failures, g.passSlice(node, key))
	}
	node.SetKnownGroups(g.listedGroups())
	return errors.Join(failures...)
}

// listedGroups returns the groups that the current watches have listed.
func (g *groupWatches) listedGroups() map[string]bool {
	names := map[string]bool{}
	for _, w := range g.current {
		maps.Copy(names, w.names)
	}
	return names
}

// passSlice passes the current state of a slice to the rules. The slices of groups that are no longer watched stay
// while a rule still needs them.
func (g *groupWatches) passSlice(node *policy.Node, key string) error {
	var after *watchedSlice
	for _, w := range g.current {
		if s := w.get(key); s != nil && w.names[s.group] {
			after = s
		}
	}
	before, ok := g.passedSlices[key]
	switch {
	case ok && after == nil && node.NeededGroups()[before.group] && !g.listedGroups()[before.group]:
		g.passedSlices[key] = watchedSlice{group: before.group}
		return nil
	case ok && (after == nil || after.group != before.group):
		delete(g.passedSlices, key)
		if err := node.SetSlice(before.group, key, nil); err != nil {
			return fmt.Errorf("take away the addresses of %s: %w", key, err)
		}
	case ok && before.slice.Equal(after.slice):
		return nil
	}
	if after == nil {
		return nil
	}
	g.passedSlices[key] = *after
	if err := node.SetSlice(after.group, key, after.slice); err != nil {
		return fmt.Errorf("put the addresses of %s: %w", key, err)
	}
	return nil
}

// close stops all watches.
func (g *groupWatches) close() {
	for _, w := range g.current {
		w.stop()
	}
	if g.next != nil {
		g.next.stop()
	}
	g.current, g.next = nil, nil
}

// start starts a watch of groups.
func (g *groupWatches) start(ctx context.Context, names map[string]bool) *groupWatch {
	ctx, cancel := context.WithCancel(ctx)
	w := &groupWatch{names: names, slices: map[string]*watchedSlice{}, sliceChanged: g.sliceChanged, onListed: g.listed}
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
	r := cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(lists, g.client),
		&discoveryv1.EndpointSlice{}, w, cache.ReflectorOptions{Name: "peers of network policies"})
	var running sync.WaitGroup
	running.Go(func() { r.RunWithContext(ctx) })
	w.stop = func() { cancel(); running.Wait() }
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

// isComplete reports whether the watch has finished its list.
func (w *groupWatch) isComplete() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.listed
}

func (w *groupWatch) get(key string) *watchedSlice {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.slices[key]
}

func (w *groupWatch) keys() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.slices))
}

// convertSlice returns the slice's name and contents. It ignores slices of other writers, which could otherwise add
// themselves to a policy's peers.
func convertSlice(o any) (key string, s *watchedSlice) {
	es, ok := o.(*discoveryv1.EndpointSlice)
	if !ok {
		return "", nil
	}
	group := es.Labels[peers.Label]
	if group == "" || es.Labels[discoveryv1.LabelManagedBy] != peers.Manager {
		return es.Name, nil
	}
	return es.Name, &watchedSlice{strings.Clone(group), policy.SliceOf(es)}
}

// Add and the following methods implement the store of a reflector.
func (w *groupWatch) Add(o any) error {
	key, s := convertSlice(o)
	w.mu.Lock()
	if s == nil {
		delete(w.slices, key)
	} else {
		w.slices[key] = s
	}
	w.mu.Unlock()
	w.sliceChanged(key)
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
		w.sliceChanged(es.Name)
	}
	return nil
}

// Replace stores a complete list.
func (w *groupWatch) Replace(list []any, _ string) error {
	all := map[string]*watchedSlice{}
	for _, o := range list {
		if key, s := convertSlice(o); s != nil {
			all[key] = s
		}
	}
	w.mu.Lock()
	before := w.slices
	w.slices, w.listed = all, true
	w.mu.Unlock()
	for _, keys := range []map[string]*watchedSlice{before, all} {
		for key := range keys {
			w.sliceChanged(key)
		}
	}
	w.onListed()
	return nil
}

// Resync does nothing, because no event is missed.
func (w *groupWatch) Resync() error { return nil }
