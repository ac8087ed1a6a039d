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

// sources implements Source with an answer that depends on the node's name.
type sources struct {
	mu        sync.Mutex
	asked     map[string]int
	forgotten []string
}

func (s *sources) Read(ctx context.Context, n *corev1.Node) (io.ReadCloser, error) {
	s.mu.Lock()
	s.asked[n.Name]++
	s.mu.Unlock()
	switch {
	case strings.HasPrefix(n.Name, "hung"):
		<-ctx.Done()
		return nil, ctx.Err()
	case strings.HasPrefix(n.Name, "endless"):
		return io.NopCloser(endless{}), nil
	case strings.HasPrefix(n.Name, "refusing"):
		return nil, errors.New("403 Forbidden")
	}
	return io.NopCloser(strings.NewReader("node_cpu_usage_seconds_total 1\nnode_memory_working_set_bytes 1\n")), nil
}

func (s *sources) Forget(name string) { s.forgotten = append(s.forgotten, name) }

// endless is an endless answer.
type endless struct{}

func (endless) Read(b []byte) (int, error) { return copy(b, "up 1\nup 1\nup 1\nup 1\n"), nil }

func collecting(c *cluster) (*collector, *sources) {
	s := &sources{asked: map[string]int{}}
	return newCollector(
		c,
		s,
		newStore(time.Second),
		500*time.Millisecond,
		slog.New(slog.DiscardHandler),
		observe(prometheus.NewRegistry()),
	), s
}

func TestNodesThatLieOrHangHoldUpNoOthers(t *testing.T) {
	c := &cluster{nodes: []*corev1.Node{node("hung"), node("endless"), node("refusing"), node("a"), node("b")}}
	asks, s := collecting(c)
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- asks.run(ctx) }()
	for tick := time.NewTicker(5 * time.Millisecond); ctx.Err() == nil; <-tick.C {
		s.mu.Lock()
		enough := s.asked["a"] > 2 && s.asked["b"] > 2 && s.asked["hung"] > 0 && s.asked["endless"] > 0
		s.mu.Unlock()
		if enough {
			stop()
		}
	}
	if err := <-done; err != nil || !errors.Is(ctx.Err(), context.Canceled) {
		t.Fatalf("%v, %v: %v", err, ctx.Err(), s.asked)
	}
	now := time.Now()
	for name, want := range map[string]bool{"a": true, "b": true, "hung": false, "endless": false, "refusing": false} {
		if got := asks.store.node(name, now) != nil; got != want {
			t.Errorf("%s is known: %v, want %v", name, got, want)
		}
	}
	if err := asks.fresh(now); err == nil || !strings.Contains(err.Error(), "2 of 5 nodes") {
		t.Errorf("with two of five: %v", err)
	}
	c.nodes[0].Status.Conditions[0].Status = corev1.ConditionUnknown
	if err := asks.fresh(now); err != nil {
		t.Errorf("with two of four that are ready: %v", err)
	}
	if err := asks.fresh(now.Add(time.Minute)); err == nil {
		t.Error("fresh after a minute without an answer")
	}
}

func TestANodeHasItsTurnOnceAndIsForgottenWhenItIsGone(t *testing.T) {
	c := &cluster{nodes: []*corev1.Node{node("a"), node("b")}}
	asks, s := collecting(c)
	now := time.Now()
	if list := asks.due(now); len(list) > 0 {
		t.Errorf("asked at once: %v", list)
	}
	later := now.Add(2 * time.Second)
	if list := asks.due(later); len(list) != 2 {
		t.Errorf("%d have their turn", len(list))
	}
	if list := asks.due(later); len(list) != 0 {
		t.Errorf("%d are asked while they are asked", len(list))
	}
	asks.ask(t.Context(), c.nodes[0])
	asks.ask(t.Context(), c.nodes[1])
	c.nodes = c.nodes[:1]
	asks.due(now)
	if asks.store.node("b", time.Now()) != nil || asks.store.node("a", time.Now()) == nil || len(s.forgotten) != 1 ||
		s.forgotten[0] != "b" {
		t.Errorf("forgotten: %v", s.forgotten)
	}
}

func TestANodeThatDoesNotAnswerIsAskedLessOften(t *testing.T) {
	for failures, want := range []time.Duration{interval, interval, 2 * interval, 4 * interval, 4 * interval,
		4 * interval} {
		if got := pause(interval, failures, 0); got != want {
			t.Errorf("after %d failures: %s, want %s", failures, got, want)
		}
		if got := pause(interval, failures, 1); got != want-want/10 {
			t.Errorf("after %d failures, by chance: %s, want %s", failures, got, want-want/10)
		}
	}
	if got := pause(2*time.Minute, 5, 0); got != 2*time.Minute {
		t.Errorf("an interval that is longer than patience: %s", got)
	}
}
