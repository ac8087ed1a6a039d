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
	// maxWatches is how many watches there may be beside each other. A group that is new is watched by a watch of its
	// own, so that those of others need not be listed again; then one takes the place of all.
	maxWatches = 8
	// maxNamed is how many groups a watch may name. One that would have to name more follows all that there are.
	maxNamed = 500
)

// groups follows the addresses of the groups that this machine's rules need.
type groups struct {
	client   kubernetes.Interface
	log      *slog.Logger
	note     func(slice string) // of a slice that may have changed
	look     func()             // when a watch has listed
	current  []*groupWatch
	next     *groupWatch           // has not listed yet
	replaces bool                  // the next one takes the place of the current ones
	told     map[string]heardSlice // what the rules were told of each slice
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
	slice *policy.Slice // nil for one that the rules may have forgotten
}

// follow has the groups watched that are needed, and tells the rules of those that a watch has listed since the last
// time. It reports whether it has told anything.
func (g *groups) follow(ctx context.Context, needed map[string]bool, node *policy.Node) (told bool, err error) {
	if g.next != nil && g.next.complete() {
		told = true
		if err := g.take(node); err != nil {
			return told, err
		}
	}
	if g.next != nil {
		return told, nil // it may have what is missing, and is waited for
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

// take makes the next watch a current one, in place of all others if it covers them.
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

// covered are the groups whose slices the current watches have listed.
func (g *groups) covered() map[string]bool {
	names := map[string]bool{}
	for _, w := range g.current {
		maps.Copy(names, w.names)
	}
	return names
}

// tell tells the rules what a slice is now. Slices of groups that no watch follows any more stay with those rules that
// still need them.
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

// close ends all watches.
func (g *groups) close() {
	for _, w := range g.current {
		w.end()
	}
	if g.next != nil {
		g.next.end()
	}
	g.current, g.next = nil, nil
}

// start begins to watch groups, until end is called.
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

// selectorOf selects the slices of groups.
func selectorOf(names map[string]bool) string {
	op, values := selection.In, slices.Sorted(maps.Keys(names))
	if len(names) > maxNamed {
		op, values = selection.Exists, nil
	}
	r, err := labels.NewRequirement(peers.Label, op, values)
	if err != nil {
		panic(err) // names of groups are good as a label's values
	}
	return labels.NewSelector().Add(*r).String()
}

// complete reports whether everything has been listed.
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

// hear takes what is of use of a slice. Those that others write are not: they could say who a policy's peers are.
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

// Add and the others are what a reflector calls.
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

// Update takes what a slice has become.
func (w *groupWatch) Update(o any) error { return w.Add(o) }

// Delete forgets a slice.
func (w *groupWatch) Delete(o any) error {
	if es, ok := o.(*discoveryv1.EndpointSlice); ok {
		w.mu.Lock()
		delete(w.slices, es.Name)
		w.mu.Unlock()
		w.note(es.Name)
	}
	return nil
}

// Replace takes a list of everything.
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

// Resync does nothing: nothing was missed.
func (w *groupWatch) Resync() error { return nil }
