package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// listSize is how many objects a list request returns, and maxPages how many requests a list takes.
const (
	listSize = 500
	maxPages = 200
)

// resources are amounts of a node's resources.
type resources struct {
	CPU    float64 `json:"cpu"`    // cores
	Memory int64   `json:"memory"` // bytes
	Pods   int64   `json:"pods"`
}

func resourcesOf(list corev1.ResourceList) resources {
	return resources{CPU: list.Cpu().AsApproximateFloat64(), Memory: list.Memory().Value(), Pods: list.Pods().Value()}
}

// usage is what a node uses.
type usage struct {
	CPU    float64 `json:"cpu"`    // cores
	Memory int64   `json:"memory"` // bytes
}

// nodeDescription is a node in the answer of /api/nodes.
type nodeDescription struct {
	Name        string     `json:"name"`
	Ready       bool       `json:"ready"`
	Schedulable bool       `json:"schedulable"`
	Pressures   []string   `json:"pressures"`
	Capacity    resources  `json:"capacity"`
	Allocatable resources  `json:"allocatable"`
	Requests    *resources `json:"requests"` // of its pods; null if the visitor may not list them
	Usage       *usage     `json:"usage"`    // null if there are no metrics
	Roles       []string   `json:"roles"`
	Version     string     `json:"version"`
	Address     string     `json:"address"`
}

// requestsLifetime is how long the sums of requests are cached at least. All pods are read for them. If that takes
// long, they are cached for requestsShare times as long.
const (
	requestsLifetime = 15 * time.Second
	requestsShare    = 10
)

// requestsCache caches the requests of each node's pods. It is safe for concurrent use; one caller reads at a time.
type requestsCache struct {
	mu     sync.Mutex
	byNode map[string]resources
	until  time.Time
}

// get returns the requests by the names of nodes.
func (c *requestsCache) get(ctx context.Context, v *visitor, now time.Time) (map[string]resources, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byNode != nil && now.Before(c.until) {
		return c.byNode, nil
	}
	start := time.Now()
	sums := map[string]resources{}
	opts := metav1.ListOptions{FieldSelector: "status.phase!=Succeeded,status.phase!=Failed"}
	err := eachPage(ctx, opts, func(ctx context.Context, opts metav1.ListOptions) (string, error) {
		list, err := v.typed.CoreV1().Pods("").List(ctx, opts)
		if err != nil {
			return "", err
		}
		for i := range list.Items {
			p := &list.Items[i]
			if p.Spec.NodeName == "" {
				continue
			}
			requests := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
			sum := sums[p.Spec.NodeName]
			sum.CPU += requests.Cpu().AsApproximateFloat64()
			sum.Memory += requests.Memory().Value()
			sum.Pods++
			sums[p.Spec.NodeName] = sum
		}
		return list.Continue, nil
	})
	if err != nil {
		return nil, err
	}
	c.byNode, c.until = sums, now.Add(max(requestsLifetime, requestsShare*time.Since(start)))
	return sums, nil
}

// eachPage calls a function with the options of each page of a list. The function returns the continue token.
func eachPage(ctx context.Context, opts metav1.ListOptions,
	read func(ctx context.Context, opts metav1.ListOptions) (string, error)) error {
	opts.Limit = listSize
	for range maxPages {
		next, err := func() (string, error) {
			ctx, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			return read(ctx, opts)
		}()
		if err != nil || next == "" {
			return err
		}
		opts.Continue = next
	}
	return fmt.Errorf("a list has more than %d objects", listSize*maxPages)
}

// listNodes answers /api/nodes.
func (d *Dashboard) listNodes(ctx context.Context, s *session) ([]nodeDescription, error) {
	v := s.visitor
	nodes := []nodeDescription{}
	err := eachPage(ctx, metav1.ListOptions{}, func(ctx context.Context, opts metav1.ListOptions) (string, error) {
		list, err := v.typed.CoreV1().Nodes().List(ctx, opts)
		if err != nil {
			return "", err
		}
		for i := range list.Items {
			nodes = append(nodes, describeNode(&list.Items[i]))
		}
		return list.Continue, nil
	})
	if err != nil {
		return nil, err
	}
	requests, err := s.requests.get(ctx, v, d.config.Now())
	if err != nil {
		d.config.Log.Debug("read the requests of pods", "user", v.user, "err", err)
	}
	used := v.nodeUsage(ctx)
	for i := range nodes {
		n := &nodes[i]
		if requests != nil {
			sum := requests[n.Name]
			n.Requests = &sum
		}
		if u, ok := used[n.Name]; ok {
			n.Usage = &u
		}
	}
	return nodes, nil
}

func describeNode(n *corev1.Node) nodeDescription {
	out := nodeDescription{Name: n.Name, Schedulable: !n.Spec.Unschedulable, Pressures: []string{}, Roles: []string{},
		Capacity: resourcesOf(n.Status.Capacity), Allocatable: resourcesOf(n.Status.Allocatable),
		Version: n.Status.NodeInfo.KubeletVersion}
	for _, c := range n.Status.Conditions {
		switch {
		case c.Type == corev1.NodeReady:
			out.Ready = c.Status == corev1.ConditionTrue
		case c.Status == corev1.ConditionTrue:
			out.Pressures = append(out.Pressures, string(c.Type))
		}
	}
	for label := range n.Labels {
		if role, ok := strings.CutPrefix(label, "node-role.kubernetes.io/"); ok && role != "" {
			out.Roles = append(out.Roles, role)
		}
	}
	slices.Sort(out.Roles)
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP && out.Address == "" {
			out.Address = a.Address
		}
	}
	return out
}

// nodeUsage returns what nodes use, by their names. It is empty if there are no metrics.
func (v *visitor) nodeUsage(ctx context.Context) map[string]usage {
	var list struct {
		Items []struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
			Usage map[string]json.RawMessage `json:"usage"`
		} `json:"items"`
	}
	if err := v.get(ctx, "/apis/metrics.k8s.io/v1beta1/nodes", &list); err != nil {
		return nil
	}
	out := map[string]usage{}
	for _, n := range list.Items {
		var cpu, memory resource.Quantity
		if json.Unmarshal(n.Usage["cpu"], &cpu) == nil && json.Unmarshal(n.Usage["memory"], &memory) == nil {
			out[n.Metadata.Name] = usage{CPU: cpu.AsApproximateFloat64(), Memory: memory.Value()}
		}
	}
	return out
}
