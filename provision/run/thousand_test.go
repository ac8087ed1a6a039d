package run_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"clusterctl/hcl/config"
	"clusterctl/provision/agent"
	"clusterctl/provision/plan"
	"clusterctl/provision/run"
	"clusterctl/tests/amount"
)

// trouble is a kind of failure of a machine, with its error.
type trouble struct {
	name   string
	before bool // the failure occurs before any change
	dial   func(b *broken) error
	at     func(b *broken) error // called in the middle of the run, at the write of a file
	says   string
}

var troubles = []trouble{
	{
		name:   "refuses",
		before: true,
		dial:   func(b *broken) error { return fmt.Errorf("dial %s: connection refused", b.address) },
		says:   "dial machine.%s: connection refused",
	},
	{
		name:   "is silent from the beginning",
		before: true,
		dial:   func(b *broken) error { b.silent.Store(true); return nil },
		says:   "it hangs: it has not answered for 30s",
	},
	{
		name: "is silent half-way",
		at:   func(b *broken) error { b.silent.Store(true); return nil },
		says: "it hangs: nothing has come from it",
	},
	{
		name: "hangs in a step",
		at:   func(b *broken) error { <-b.well; return errors.New("the disk was gone") },
		says: "it hangs: nothing has come from it",
	},
	{
		name: "drops, and refuses then",
		at:   func(b *broken) error { b.refuses.Store(true); b.drop(); return io.ErrClosedPipe },
		says: "dial machine.%s: connection refused",
	},
	{
		name: "has a disk that fails",
		at:   func(b *broken) error { return fmt.Errorf("disk of %s: input/output error", b.address) },
		says: "disk of machine.%s: input/output error",
	},
	// the same run completes the machine
	{name: "drops once", at: func(b *broken) error { b.once.Do(b.drop); return nil }},
}

type broken struct {
	trouble
	address string
	silent  atomic.Bool
	refuses atomic.Bool
	well    chan struct{}
	once    sync.Once
	mu      sync.Mutex
	conn    net.Conn
}

func (b *broken) drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	_ = b.conn.Close()
}

// quiet is a connection that delivers nothing while its machine is silent.
type quiet struct {
	net.Conn
	b *broken
}

func (q quiet) Read(p []byte) (int, error) {
	for {
		n, err := q.Conn.Read(p)
		if err != nil || !q.b.silent.Load() {
			return n, err
		}
	}
}

// breaks makes machines fail. The returned function repairs them.
func (w *world) breaks(list map[string]*broken) (heal func()) {
	usual := w.engine.Dial
	for address, b := range list {
		if b.at == nil {
			continue
		}
		var writes atomic.Int32
		w.hosts[address].Before = func(string) error {
			if writes.Add(1) < 10 {
				return nil
			}
			return b.at(b)
		}
	}
	w.engine.Dial = func(ctx context.Context, m config.Machine) (run.Agent, error) {
		b := list[m.Address]
		if b == nil {
			return usual(ctx, m)
		}
		if b.refuses.Load() {
			return nil, fmt.Errorf("dial %s: connection refused", m.Address)
		}
		if b.dial != nil {
			if err := b.dial(b); err != nil {
				return nil, err
			}
		}
		near, far := net.Pipe()
		b.mu.Lock()
		b.conn = near
		b.mu.Unlock()
		w.wait.Go(func() {
			_ = agent.Serve(context.Background(), w.at[m.IP], far, far)
			_ = far.Close()
		})
		return agent.NewClient(quiet{near, b}), nil
	}
	return func() {
		for address, b := range list {
			w.hosts[address].Before = nil
			close(b.well)
		}
		w.engine.Dial = usual
		synctest.Wait()
	}
}

// Of a thousand machines, one in twenty refuses, hangs or drops the connection. Failures before any change are reported
// for each machine, and nothing is changed. If these machines are skipped, one run changes all others and reports each
// failure once. When the machines work again, the next run completes what is left and does nothing else.
// Proves P02.
func TestOneMachineInTwentyIsBrokenAndTheRestIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		machines := amount.Of(1000, 7*20) // 1 in 20 is broken, so that each trouble occurs
		declared := []config.Machine{control}
		for i := range machines - 1 {
			declared = append(
				declared,
				machine(
					fmt.Sprintf("n%d", i),
					netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}).String(),
					config.RoleNode,
				),
			)
		}
		w := newWorld(t, declared...)
		random := rand.New(rand.NewPCG(1, 20))
		sick, early := map[string]*broken{}, []string{}
		for n, i := range random.Perm(machines - 1)[:machines/20] {
			b := &broken{trouble: troubles[n%len(troubles)], address: declared[i+1].Address, well: make(chan struct{})}
			if sick[b.address] = b; b.before {
				early = append(early, b.address)
			}
		}
		heal := w.breaks(sick)
		var mu sync.Mutex
		var failed, done []string
		w.engine.Say = func(e run.Event) {
			mu.Lock()
			defer mu.Unlock()
			switch e.Kind {
			case run.EventFailed:
				failed = append(failed, e.Machine)
				sick[e.Machine].told(t, e.Message)
			case run.EventDone:
				done = append(done, e.Machine)
			}
		}

		_, err := w.longApply()
		w.reported(err, sick, func(b *broken) bool { return b.before })
		for address, h := range w.hosts {
			if len(h.Log) > 0 {
				t.Fatalf("%s was changed: %v", address, h.Log)
			}
		}

		w.engine.SkipUnreachable = true
		p, err := w.longApply()
		w.reported(err, sick, func(b *broken) bool { return b.says != "" })
		if n, _ := p.Count(plan.Skipped); n != len(early) || len(early) == 0 {
			t.Errorf("the plan skips %d, and %d are not reached", n, len(early))
		}
		late := func(b *broken) bool { return !b.before && b.says != "" }
		s, readErr := w.engine.Store.Read()
		if readErr != nil {
			t.Fatal(readErr)
		}
		slices.Sort(failed)
		slices.Sort(done)
		var left []string
		for _, m := range declared {
			b := sick[m.Address]
			is := b != nil && late(b)
			if is || slices.Contains(early, m.Address) {
				left = append(left, m.Address)
			}
			if _, found := slices.BinarySearch(failed, m.Address); found != is {
				t.Errorf("%s is said to have failed: %t, want %t", m.Address, found, is)
			}
			if _, found := slices.BinarySearch(done, m.Address); found == slices.Contains(left, m.Address) ||
				s.Machines[m.Address].Joined != found {
				t.Errorf(
					"%s is said to be done: %t, and joined in the state: %t",
					m.Address,
					found,
					s.Machines[m.Address].Joined,
				)
			}
		}
		if len(failed)+len(done)+len(early) != machines {
			t.Errorf("%d failed and %d done without %d, and there are %d", len(failed), len(done), len(early), machines)
		}

		heal()
		w.engine.SkipUnreachable = false
		p, err = w.longApply()
		if err != nil {
			t.Fatal(err)
		}
		var changed []string
		for _, m := range p.Machines {
			if m.Action != plan.None {
				changed = append(changed, m.Address)
			}
		}
		slices.Sort(changed)
		slices.Sort(left)
		if !slices.Equal(changed, left) {
			t.Errorf("the next run did %v, and what was left is %v", changed, left)
		}
		if p, err = w.longApply(); err != nil || !p.Empty() {
			t.Errorf("not empty afterwards: %v", err)
		}
	})
}

// longApply is apply without a time limit.
func (w *world) longApply() (*plan.Plan, error) {
	p, err := w.engine.Prepare(w.t.Context())
	if err != nil {
		return nil, err
	}
	defer p.Close()
	return p.Plan, p.Apply(w.t.Context())
}

// reported checks that an error has one line for each expected machine, with the reason.
func (w *world) reported(err error, sick map[string]*broken, meant func(*broken) bool) {
	w.t.Helper()
	if err == nil {
		w.t.Fatal("no error")
	}
	said := map[string]int{}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		address, reason, ok := strings.Cut(line, " (cluster.hcl:7): ")
		b := sick[address]
		if !ok || b == nil || !meant(b) {
			w.t.Errorf("a line about nothing that is broken: %q", line)
			continue
		}
		said[address]++
		b.told(w.t, reason)
	}
	for address, b := range sick {
		if want := meant(b); want && said[address] != 1 {
			w.t.Errorf("%s, which %s, is said %d times", address, b.name, said[address])
		}
	}
}

func (b *broken) told(t testing.TB, reason string) {
	want := b.says
	if strings.Contains(want, "%s") {
		want = fmt.Sprintf(want, strings.TrimPrefix(b.address, "machine."))
	}
	if !strings.Contains(reason, want) {
		t.Errorf("of %s, which %s, is said %q, want %q", b.address, b.name, reason, want)
	}
}
