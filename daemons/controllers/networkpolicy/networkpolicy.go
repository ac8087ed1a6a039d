// Package networkpolicy publishes the addresses of the peers of NetworkPolicies as EndpointSlices without a Service,
// named as package peers defines. It computes each group of pods once for all machines. The machines enforce the
// policies.
package networkpolicy

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/api/peers"
	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/endpoints"
	"clusterctl/daemons/controllers/loop"
)

const (
	// sweepKey is the key for deleting slices that no policy needs. Keys of groups contain a slash.
	sweepKey = "sweep"
	// sweepDelay is the delay before a sweep. It collects several groups for one request to the server. A policy that
	// is deleted and created again also finds its slices.
	sweepDelay = 5 * time.Second
	groupIndex = "network-policy-peers"
)

type controller struct {
	loop.Context
	loop.Loop
	pods       corelisters.PodLister
	namespaces corelisters.NamespaceLister
	slices     cache.Indexer
	groups     *groups
	expect     loop.Expectations
}

// New returns the controller that manages the EndpointSlices of every group of pods that a NetworkPolicy names.
func New(c loop.Context) loop.Controller {
	pods, namespaces := informers.Pods(c.Informers), informers.Namespaces(c.Informers)
	policies, slices := informers.NetworkPolicies(c.Informers), informers.EndpointSlices(c.Informers)
	n := &controller{
		Context:    c,
		pods:       pods.Lister(),
		namespaces: namespaces.Lister(),
		slices:     slices.Informer().GetIndexer(),
		groups:     newGroups(),
		expect:     loop.Expectations{Now: c.Now},
	}
	n.Loop = loop.Loop{Name: "networkpolicy", Context: c, Sync: n.sync, Synced: []cache.InformerSynced{
		pods.Informer().HasSynced, namespaces.Informer().HasSynced, policies.Informer().HasSynced,
		slices.Informer().HasSynced}}
	// Indexes must be added before the informer starts; controllers are created before that.
	_ = slices.Informer().AddIndexers(cache.Indexers{groupIndex: func(obj any) ([]string, error) {
		if slice, ok := obj.(*discoveryv1.EndpointSlice); ok && isOwnSlice(slice) {
			return []string{slice.Labels[peers.Label]}, nil
		}
		return nil, nil
	}})
	c.OnChange(policies.Informer(), func(old, obj any) {
		before, _ := old.(*networkingv1.NetworkPolicy)
		after, _ := obj.(*networkingv1.NetworkPolicy)
		n.enqueueGroups(n.groups.policyChanged(before, after))
	})
	c.OnChange(pods.Informer(), func(old, obj any) {
		before, _ := old.(*corev1.Pod)
		after, _ := obj.(*corev1.Pod)
		n.enqueueGroups(n.groups.ofPod(before, after, n.namespaceLabels))
	})
	c.OnChange(namespaces.Informer(), func(old, obj any) {
		before, _ := old.(*corev1.Namespace)
		after, _ := obj.(*corev1.Namespace)
		n.enqueueGroups(n.groups.ofNamespace(before, after))
	})
	endpoints.EnqueueOnSlices(c, slices.Informer(), peers.Label, peers.Manager, &n.expect, func(key string) {
		if strings.HasPrefix(key, peers.Namespace+"/") {
			n.Queue().Add(key)
		}
	})
	return n
}

func isOwnSlice(slice *discoveryv1.EndpointSlice) bool {
	return slice.Namespace == peers.Namespace && slice.Labels[discoveryv1.LabelManagedBy] == peers.Manager &&
		slice.Labels[peers.Label] != ""
}

func (n *controller) enqueueGroups(names []string) {
	for _, name := range names {
		n.Queue().Add(peers.Namespace + "/" + name)
	}
}

// namespaceLabels returns a namespace's labels. It returns false for a namespace that is not in the cache; its event
// wakes its groups later.
func (n *controller) namespaceLabels(name string) (labels.Set, bool) {
	ns, err := n.namespaces.Get(name)
	if err != nil {
		return nil, false
	}
	return ns.Labels, true
}

func (n *controller) sync(ctx context.Context, key string) error {
	if key == sweepKey {
		return n.sweep(ctx)
	}
	name := strings.TrimPrefix(key, peers.Namespace+"/")
	g := n.groups.get(name)
	if g == nil {
		n.AddAfter(sweepKey, sweepDelay)
		return nil
	}
	if !n.expect.IsMet(key) {
		return nil // the cache does not show one of our slices yet; its event queues the group again
	}
	members, err := n.members(g)
	if err != nil {
		return fmt.Errorf("list the pods of %s: %w", name, err)
	}
	existing, err := n.slicesOf(name)
	if err != nil {
		return err
	}
	return planChanges(name, groupAddresses(members, g.Ports), existing).Write(ctx, n.Client, &n.expect, key)
}

// members returns the pods that a group matches, with or without addresses.
func (n *controller) members(g *group) ([]*corev1.Pod, error) {
	switch {
	case g.NamespaceSelector == nil:
		return n.pods.Pods(g.Namespace).List(g.pods)
	case g.namespaces.Empty():
		return n.pods.List(g.pods)
	}
	namespaces, err := n.namespaces.List(g.namespaces)
	if err != nil {
		return nil, err
	}
	var all []*corev1.Pod
	for _, ns := range namespaces {
		pods, err := n.pods.Pods(ns.Name).List(g.pods)
		if err != nil {
			return nil, err
		}
		all = append(all, pods...)
	}
	return all, nil
}

func (n *controller) slicesOf(name string) ([]*discoveryv1.EndpointSlice, error) {
	found, err := n.slices.ByIndex(groupIndex, name)
	if err != nil {
		return nil, fmt.Errorf("look up the slices of %s: %w", name, err)
	}
	list := make([]*discoveryv1.EndpointSlice, len(found))
	for i, obj := range found {
		list[i] = obj.(*discoveryv1.EndpointSlice)
	}
	return list, nil
}

// sweep deletes the slices of groups that no policy names. It asks the API server for the policies: these caches may
// show the slices of another leader, but not the policy for them yet.
func (n *controller) sweep(ctx context.Context) error {
	unnamed := map[string]bool{}
	for _, name := range n.slices.ListIndexFuncValues(groupIndex) {
		if n.groups.get(name) == nil {
			unnamed[name] = true
		}
	}
	if len(unnamed) == 0 {
		return nil
	}
	policies, err := n.Client.NetworkingV1().NetworkPolicies("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list NetworkPolicies: %w", err)
	}
	for i := range policies.Items {
		for _, g := range peers.GroupsOf(&policies.Items[i]) {
			delete(unnamed, g.Name())
		}
	}
	for name := range unnamed {
		if n.groups.get(name) != nil {
			continue // a policy was created in the meantime
		}
		existing, err := n.slicesOf(name)
		if err != nil {
			return err
		}
		key := peers.Namespace + "/" + name
		n.expect.Delete(key)
		if err := planChanges(name, nil, existing).Write(ctx, n.Client, &n.expect, key); err != nil {
			return err
		}
	}
	return nil
}
