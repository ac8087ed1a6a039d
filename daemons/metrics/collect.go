package metrics

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
)

// Source reads what the kubelet of a node serves at /metrics/resource.
type Source interface {
	Read(ctx context.Context, node *corev1.Node) (io.ReadCloser, error)
	// Release releases the resources for a node that is gone.
	Release(node string)
}

const (
	// maxConcurrentRequests is the maximum number of concurrent requests.
	maxConcurrentRequests = 64
	// checkInterval is the interval between checks for nodes that are due.
	checkInterval = 250 * time.Millisecond
	// maxRetryInterval is the maximum interval between requests to a node that does not answer.
	maxRetryInterval = time.Minute
)

// collector reads the metrics of every node once per interval.
type collector struct {
	objects  Objects
	source   Source
	store    *store
	interval time.Duration
	deadline time.Duration // for one node
	log      *slog.Logger
	observed *selfMetrics
	scanners sync.Pool

	mu        sync.Mutex
	schedules map[string]schedule
}

// schedule records when a node is due.
type schedule struct {
	due       time.Time
	failures  int
	isRunning bool // a request is running
}

func newCollector(
	objects Objects,
	source Source,
	s *store,
	deadline time.Duration,
	log *slog.Logger,
	o *selfMetrics,
) *collector {
	return &collector{
		objects: objects, source: source, store: s, interval: s.interval, deadline: deadline, log: log, observed: o,
		scanners: sync.Pool{New: func() any { return newScanner() }}, schedules: map[string]schedule{},
	}
}

// run collects until ctx ends.
func (c *collector) run(ctx context.Context) error {
	requests := errgroup.Group{}
	requests.SetLimit(maxConcurrentRequests)
	tick := time.NewTicker(min(checkInterval, c.interval))
	defer tick.Stop()
	for ctx.Err() == nil {
		for _, node := range c.dueNodes(time.Now()) {
			// Go blocks while there are too many requests
			requests.Go(func() error { c.collectNode(ctx, node); return nil })
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	return requests.Wait()
}

// dueNodes returns the nodes that are due and marks them as asked. Those that are longest overdue come first. A new
// node becomes due soon, at a random time. Nodes that are gone are removed.
func (c *collector) dueNodes(now time.Time) []*corev1.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []*corev1.Node
	existing := make(map[string]bool, len(c.schedules))
	for _, node := range c.objects.Nodes() {
		existing[node.Name] = true
		t, ok := c.schedules[node.Name]
		if !ok {
			t.due = now.Add(jitter(min(time.Second, c.interval/2)))
			c.schedules[node.Name] = t
		}
		if !t.isRunning && !now.Before(t.due) {
			list = append(list, node)
		}
	}
	slices.SortFunc(list, func(a,
		b *corev1.Node) int {
		return c.schedules[a.Name].due.Compare(c.schedules[b.Name].due)
	})
	for _, node := range list {
		t := c.schedules[node.Name]
		t.isRunning = true
		c.schedules[node.Name] = t
	}
	for name, t := range c.schedules {
		if !existing[name] && !t.isRunning {
			delete(c.schedules, name)
			c.store.delete(name)
			c.source.Release(name)
		}
	}
	return list
}

// collectNode reads the metrics of one node and sets when it is due next.
func (c *collector) collectNode(ctx context.Context, node *corev1.Node) {
	start := time.Now()
	err := c.fetchNode(ctx, node)
	now := time.Now()
	c.mu.Lock()
	t := c.schedules[node.Name]
	t.isRunning = false
	if err == nil {
		t.failures = 0
	} else {
		t.failures++
	}
	t.due = start.Add(nextInterval(c.interval, t.failures, rand.Float64()))
	c.schedules[node.Name] = t
	c.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	c.observed.observeRequest(now.Sub(start), err)
	if err != nil && t.failures == 1 { // further failures would log the same
		c.log.Warn("read what a node uses", "node", node.Name, "err", err)
	}
}

// nextInterval returns the time between two requests to a node. It contains a random part, so that nodes do not stay
// synchronized. The interval grows for nodes that do not answer, so that dead nodes leave capacity for the others.
func nextInterval(interval time.Duration, failures int, chance float64) time.Duration {
	if failures > 1 {
		interval = max(interval, min(interval<<min(failures-1, 8), maxRetryInterval))
	}
	return interval - time.Duration(chance*float64(interval)/10)
}

func jitter(maximum time.Duration) time.Duration {
	return time.Duration(rand.Float64() * float64(maximum))
}

func (c *collector) fetchNode(ctx context.Context, node *corev1.Node) error {
	ctx, cancel := context.WithTimeout(ctx, c.deadline)
	defer cancel()
	body, err := c.source.Read(ctx, node)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }() // it was read as far as necessary
	s := c.scanners.Get().(*scanner)
	defer c.scanners.Put(s)
	a, err := parseAnswer(s, body, c.objects.PodsOn(node.Name))
	s.reset(nil)
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	c.store.record(node.Name, a, time.Now())
	return nil
}

// checkFresh returns an error unless at least half of the ready nodes have answered recently. If fewer have, the
// problem is probably this server's own network.
func (c *collector) checkFresh(now time.Time) error {
	ready, good := 0, 0
	for _, node := range c.objects.Nodes() {
		if !isReady(node) {
			continue
		}
		ready++
		if c.store.node(node.Name, now) != nil {
			good++
		}
	}
	if 2*good < ready {
		return fmt.Errorf("%d of %d ready nodes have reported their usage", good, ready)
	}
	return nil
}

func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
