// Package nodecidr assigns each node a subnet of each of the cluster's pod networks. There is one pod network per IP
// family.
package nodecidr

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
)

type controller struct {
	loop.Context
	loop.Loop
	nodes corelisters.NodeLister

	mu sync.Mutex // allows one allocation at a time: the cache may not show the last one yet
	// subnetsByNode holds subnets by node, and holder nodes by subnet. Both include those that the cache does not show
	// yet.
	subnetsByNode map[string][]string
	nodeBySubnet  map[string]string
	nodeIndexer   cache.Indexer     // nodes indexed by their subnets
	lastAssigned  map[string]string // by network: the last assigned subnet, after which the search continues
}

const subnetIndex = "podCIDR"

// New returns the controller.
func New(c loop.Context) loop.Controller {
	nodes := informers.Nodes(c.Informers)
	n := &controller{
		Context:       c,
		nodes:         nodes.Lister(),
		subnetsByNode: map[string][]string{},
		nodeBySubnet:  map[string]string{},
		nodeIndexer:   nodes.Informer().GetIndexer(),
		lastAssigned:  map[string]string{},
	}
	// Adding the index again, after an earlier term as the leader, fails and is harmless.
	_ = nodes.Informer().AddIndexers(cache.Indexers{subnetIndex: func(obj any) ([]string, error) {
		node, ok := obj.(*corev1.Node)
		switch {
		case ok && len(node.Spec.PodCIDRs) > 0:
			return node.Spec.PodCIDRs, nil
		case ok && node.Spec.PodCIDR != "":
			return []string{node.Spec.PodCIDR}, nil
		}
		return nil, nil
	}})
	n.Loop = loop.Loop{
		Name:            "nodecidr",
		QueueMetricName: "cidrallocator_node",
		Context:         c,
		Sync:            n.sync,
		Workers:         1,
		Synced:          []cache.InformerSynced{nodes.Informer().HasSynced},
	}
	c.OnChange(nodes.Informer(), func(old, obj any) {
		if obj == nil {
			n.releaseNode(old.(*corev1.Node).Name)
			return
		}
		// A node that has subnets needs no sync. Few of thousands of nodes have none.
		before, _ := old.(*corev1.Node)
		if after := obj.(*corev1.Node); after.Spec.PodCIDR == "" || before != nil && before.Spec.PodCIDR == "" {
			n.Add(after)
		}
	})
	return n
}

func (n *controller) sync(ctx context.Context, name string) error {
	node, err := n.nodes.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	if node.Spec.PodCIDR != "" {
		n.releaseNode(name) // the cache shows it now
		return nil
	}
	if node.DeletionTimestamp != nil || !n.Config.AllocateNodeCIDRs || len(n.Config.ClusterCIDR) == 0 {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	pieces := n.subnetsByNode[name] // they may be written already and not shown by the cache yet
	if pieces == nil {
		if pieces, err = n.nextSubnets(); err != nil {
			n.Events.Eventf(node, corev1.EventTypeNormal, "CIDRNotAvailable", "Node %s status is now: CIDRNotAvailable",
				name)
			return err
		}
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"podCIDR": pieces[0], "podCIDRs": pieces}})
	if err != nil {
		return err
	}
	if _, err := n.Client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("give node %s the pod network %s: %w", name, strings.Join(pieces, ", "), err)
	}
	n.subnetsByNode[name] = pieces
	for i, piece := range pieces {
		n.nodeBySubnet[piece], n.lastAssigned[n.Config.ClusterCIDR[i]] = name, piece
	}
	return nil
}

// nextSubnets returns a free subnet of each network.
func (n *controller) nextSubnets() (pieces []string, err error) {
	for _, network := range n.Config.ClusterCIDR {
		whole, err := netip.ParsePrefix(network)
		if err != nil {
			return nil, fmt.Errorf("pod network %q: %w", network, err)
		}
		bits := n.Config.NodeCIDRMaskSize
		if whole.Addr().Is6() {
			bits = n.Config.NodeCIDRMaskSizeIPv6
		}
		piece, err := NextSubnet(network, bits, n.lastAssigned[network], n.isUsed)
		if err != nil {
			return nil, err
		}
		pieces = append(pieces, piece)
	}
	return pieces, nil
}

// isUsed reports whether a node has this subnet.
func (n *controller) isUsed(piece string) bool {
	if n.nodeBySubnet[piece] != "" {
		return true
	}
	names, err := n.nodeIndexer.IndexKeys(subnetIndex, piece)
	return err != nil || len(names) > 0
}

func (n *controller) releaseNode(node string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, piece := range n.subnetsByNode[node] {
		delete(n.nodeBySubnet, piece)
	}
	delete(n.subnetsByNode, node)
}

// NextSubnet returns the first free subnet of network with the prefix length bits. It searches from the subnet after
// last, so that thousands of nodes do not each check the subnets of all others. If last is empty, it searches from the
// first subnet.
func NextSubnet(network string, bits int, last string, used func(piece string) bool) (string, error) {
	whole, err := netip.ParsePrefix(network)
	if err != nil {
		return "", fmt.Errorf("pod network %q: %w", network, err)
	}
	if bits < whole.Bits() || bits > whole.Addr().BitLen() {
		return "", fmt.Errorf("pod network %s cannot be cut into pieces of /%d", network, bits)
	}
	whole = whole.Masked()
	first := netip.PrefixFrom(whole.Addr(), bits)
	begin := first
	if after, err := netip.ParsePrefix(last); err == nil && after.Bits() == bits && whole.Contains(after.Addr()) {
		begin = after
	}
	for piece, looked := begin, 0; looked == 0 || piece != begin; looked++ {
		if text := piece.String(); !used(text) {
			return text, nil
		}
		next, ok := nextPrefix(piece)
		if !ok || !whole.Contains(next.Addr()) {
			next = first
		}
		piece = next
	}
	return "", fmt.Errorf("pod network %s has no free piece of /%d left", network, bits)
}

// nextPrefix returns the prefix after p of the same length. It returns false at the end of the address space.
func nextPrefix(p netip.Prefix) (netip.Prefix, bool) {
	raw := p.Addr().As16()
	shift := 128 - p.Bits()
	if p.Addr().Is4() {
		shift = 32 - p.Bits()
	}
	high, low := binary.BigEndian.Uint64(raw[:8]), binary.BigEndian.Uint64(raw[8:])
	if shift >= 64 {
		high += 1 << (shift - 64)
	} else {
		before := low
		low += 1 << shift
		if low < before {
			high++
		}
	}
	binary.BigEndian.PutUint64(raw[:8], high)
	binary.BigEndian.PutUint64(raw[8:], low)
	next := netip.AddrFrom16(raw)
	if p.Addr().Is4() {
		if low>>32 != 0xffff {
			return netip.Prefix{}, false
		}
		next = next.Unmap()
	}
	return netip.PrefixFrom(next, p.Bits()), next.Compare(p.Addr()) > 0
}
