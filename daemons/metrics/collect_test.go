package metrics

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

// fakeSource implements Source with an answer that depends on the node's name.
type fakeSource struct {
	mu       sync.Mutex
	reads    map[string]int
	released []string
}

func (s *fakeSource) Read(ctx context.Context, n *corev1.Node) (io.ReadCloser, error) {
	s.mu.Lock()
	s.reads[n.Name]++
	s.mu.Unlock()
	switch {
	case strings.HasPrefix(n.Name, "hung"):
		<-ctx.Done()
		return nil, ctx.Err()
	case strings.HasPrefix(n.Name, "endless"):
		return io.NopCloser(endlessAnswer{}), nil
	case strings.HasPrefix(n.Name, "refusing"):
		return nil, errors.New("403 Forbidden")
	}
	return io.NopCloser(strings.NewReader("node_cpu_usage_seconds_total 1\nnode_memory_working_set_bytes 1\n")), nil
}

func (s *fakeSource) Release(name string) { s.released = append(s.released, name) }

// endlessAnswer is an endless answer.
type endlessAnswer struct{}

func (endlessAnswer) Read(b []byte) (int, error) { return copy(b, "up 1\nup 1\nup 1\nup 1\n"), nil }

func newTestCollector(c *cluster) (*collector, *fakeSource) {
	s := &fakeSource{reads: map[string]int{}}
	return newCollector(c, s, newStore(time.Second), 500*time.Millisecond, slog.New(slog.DiscardHandler),
		newSelfMetrics(prometheus.NewRegistry())), s
}

func TestInvalidOrHangingNodesDelayNoOthers(t *testing.T) {
	c := &cluster{nodes: []*corev1.Node{node("hung"), node("endless"), node("refusing"), node("a"), node("b")}}
	asks, s := newTestCollector(c)
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- asks.run(ctx) }()
	for tick := time.NewTicker(5 * time.Millisecond); ctx.Err() == nil; <-tick.C {
		s.mu.Lock()
		enough := s.reads["a"] > 2 && s.reads["b"] > 2 && s.reads["hung"] > 0 && s.reads["endless"] > 0
		s.mu.Unlock()
		if enough {
			stop()
		}
	}
	if err := <-done; err != nil || !errors.Is(ctx.Err(), context.Canceled) {
		t.Fatalf("%v, %v: %v", err, ctx.Err(), s.reads)
	}
	now := time.Now()
	for name, want := range map[string]bool{"a": true, "b": true, "hung": false, "endless": false, "refusing": false} {
		if got := asks.store.node(name, now) != nil; got != want {
			t.Errorf("%s is known: %v, want %v", name, got, want)
		}
	}
	if err := asks.checkFresh(now); err == nil || !strings.Contains(err.Error(), "2 of 5 ready nodes") {
		t.Errorf("with two of five: %v", err)
	}
	c.nodes[0].Status.Conditions[0].Status = corev1.ConditionUnknown
	if err := asks.checkFresh(now); err != nil {
		t.Errorf("with two of four that are ready: %v", err)
	}
	if err := asks.checkFresh(now.Add(time.Minute)); err == nil {
		t.Error("fresh after a minute without an answer")
	}
}

func TestNodesAreReadOncePerIntervalAndReleased(t *testing.T) {
	c := &cluster{nodes: []*corev1.Node{node("a"), node("b")}}
	asks, s := newTestCollector(c)
	now := time.Now()
	if list := asks.dueNodes(now); len(list) > 0 {
		t.Errorf("asked at once: %v", list)
	}
	later := now.Add(2 * time.Second)
	if list := asks.dueNodes(later); len(list) != 2 {
		t.Errorf("%d have their turn", len(list))
	}
	if list := asks.dueNodes(later); len(list) != 0 {
		t.Errorf("%d are asked while they are asked", len(list))
	}
	asks.collectNode(t.Context(), c.nodes[0])
	asks.collectNode(t.Context(), c.nodes[1])
	c.nodes = c.nodes[:1]
	asks.dueNodes(now)
	if asks.store.node("b", time.Now()) != nil || asks.store.node("a", time.Now()) == nil || len(s.released) != 1 ||
		s.released[0] != "b" {
		t.Errorf("forgotten: %v", s.released)
	}
}

func TestUnansweredNodesAreReadLessOften(t *testing.T) {
	for failures, want := range []time.Duration{interval, interval, 2 * interval, 4 * interval, 4 * interval,
		4 * interval} {
		if got := nextInterval(interval, failures, 0); got != want {
			t.Errorf("after %d failures: %s, want %s", failures, got, want)
		}
		if got := nextInterval(interval, failures, 1); got != want-want/10 {
			t.Errorf("after %d failures, by chance: %s, want %s", failures, got, want-want/10)
		}
	}
	if got := nextInterval(2*time.Minute, 5, 0); got != 2*time.Minute {
		t.Errorf("an interval that is longer than patience: %s", got)
	}
}
