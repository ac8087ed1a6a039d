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
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
	"clusterctl/tests/tools/amount"
)

// trouble is a kind of failure of a machine, with its error.
type trouble struct {
	name           string
	isBeforeChange bool // the failure occurs before any change
	dial           func(b *brokenMachine) error
	onWrite        func(b *brokenMachine) error // called in the middle of the run, at the write of a file
	errorText      string
}

var troubles = []trouble{
	{
		name:           "refuses",
		isBeforeChange: true,
		dial:           func(b *brokenMachine) error { return fmt.Errorf("dial %s: connection refused", b.address) },
		errorText:      "dial machine.%s: connection refused",
	},
	{
		name:           "is silent from the beginning",
		isBeforeChange: true,
		dial:           func(b *brokenMachine) error { b.isSilent.Store(true); return nil },
		errorText:      "it hangs: it has not answered for 30s",
	},
	{
		name:      "is silent half-way",
		onWrite:   func(b *brokenMachine) error { b.isSilent.Store(true); return nil },
		errorText: "it hangs: nothing has come from it",
	},
	{
		name:      "hangs in a step",
		onWrite:   func(b *brokenMachine) error { <-b.healed; return errors.New("the disk was gone") },
		errorText: "it hangs: nothing has come from it",
	},
	{
		name: "drops, and refuses then",
		onWrite: func(b *brokenMachine) error {
			b.isRefusing.Store(true)
			b.closeConnection()
			return io.ErrClosedPipe
		},
		errorText: "dial machine.%s: connection refused",
	},
	{
		name:      "has a disk that fails",
		onWrite:   func(b *brokenMachine) error { return fmt.Errorf("disk of %s: input/output error", b.address) },
		errorText: "disk of machine.%s: input/output error",
	},
	// the same run completes the machine
	{name: "drops once", onWrite: func(b *brokenMachine) error { b.once.Do(b.closeConnection); return nil }},
}

type brokenMachine struct {
	trouble
	address    string
	isSilent   atomic.Bool
	isRefusing atomic.Bool
	healed     chan struct{}
	once       sync.Once
	mu         sync.Mutex
	conn       net.Conn
}

func (b *brokenMachine) closeConnection() {
	b.mu.Lock()
	defer b.mu.Unlock()
	_ = b.conn.Close()
}

// silenceableConn is a connection that delivers nothing while its machine is silent.
type silenceableConn struct {
	net.Conn
	machine *brokenMachine
}

func (q silenceableConn) Read(p []byte) (int, error) {
	for {
		n, err := q.Conn.Read(p)
		if err != nil || !q.machine.isSilent.Load() {
			return n, err
		}
	}
}

// breakMachines makes machines fail. The returned function repairs them.
func (w *world) breakMachines(list map[string]*brokenMachine) (heal func()) {
	usual := w.engine.Dial
	for address, b := range list {
		if b.onWrite == nil {
			continue
		}
		var writes atomic.Int32
		w.hosts[address].BeforeChange = func(string) error {
			if writes.Add(1) < 10 {
				return nil
			}
			return b.onWrite(b)
		}
	}
	w.engine.Dial = func(ctx context.Context, m config.Machine) (session.Agent, error) {
		b := list[m.Address]
		if b == nil {
			return usual(ctx, m)
		}
		if b.isRefusing.Load() {
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
		w.agents.Go(func() {
			_ = agent.Serve(context.Background(), w.hostsByIP[m.IP], far, far)
			_ = far.Close()
		})
		return agent.NewClient(silenceableConn{near, b}), nil
	}
	return func() {
		for address, b := range list {
			w.hosts[address].BeforeChange = nil
			close(b.healed)
		}
		w.engine.Dial = usual
		synctest.Wait()
	}
}

// Of a thousand machines, one in twenty refuses, hangs or drops the connection. Failures before any change are reported
// for each machine, and nothing is changed. If these machines are skipped, one run changes all others and reports each
// failure once. When the machines work again, the next run completes what is left and does nothing else.
// Proves P02.
//
//style:long one scenario of four runs over the same machines, each of which starts from the state of the previous one
func TestBrokenMachinesDoNotBlockTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		machines := amount.Scaled(1000, 7*20) // 1 in 20 is broken, so that each trouble occurs
		declared := []config.Machine{controlMachine}
		for i := range machines - 1 {
			declared = append(declared, machine(fmt.Sprintf("n%d", i),
				netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}).String(), config.RoleNode))
		}
		w := newWorld(t, declared...)
		random := rand.New(rand.NewPCG(1, 20))
		sick, early := map[string]*brokenMachine{}, []string{}
		for n, i := range random.Perm(machines - 1)[:machines/20] {
			b := &brokenMachine{trouble: troubles[n%len(troubles)], address: declared[i+1].Address,
				healed: make(chan struct{})}
			if sick[b.address] = b; b.isBeforeChange {
				early = append(early, b.address)
			}
		}
		heal := w.breakMachines(sick)
		var mu sync.Mutex
		var failed, done []string
		w.engine.Report = func(e report.Event) {
			mu.Lock()
			defer mu.Unlock()
			switch e.Kind {
			case report.Failed:
				failed = append(failed, e.Machine)
				sick[e.Machine].checkReason(t, e.Message)
			case report.Done:
				done = append(done, e.Machine)
			}
		}

		_, err := w.applyWithoutLimit()
		w.checkReported(err, sick, func(b *brokenMachine) bool { return b.isBeforeChange })
		for address, h := range w.hosts {
			if len(h.Log) > 0 {
				t.Fatalf("%s was changed: %v", address, h.Log)
			}
		}

		w.engine.SkipsUnreachable = true
		p, err := w.applyWithoutLimit()
		w.checkReported(err, sick, func(b *brokenMachine) bool { return b.errorText != "" })
		if n, _ := p.Count(plan.Skipped); n != len(early) || len(early) == 0 {
			t.Errorf("the plan skips %d, and %d are not reached", n, len(early))
		}
		isLate := func(b *brokenMachine) bool { return !b.isBeforeChange && b.errorText != "" }
		s, readErr := w.engine.Store.Read()
		if readErr != nil {
			t.Fatal(readErr)
		}
		slices.Sort(failed)
		slices.Sort(done)
		var left []string
		for _, m := range declared {
			b := sick[m.Address]
			isLateMachine := b != nil && isLate(b)
			if isLateMachine || slices.Contains(early, m.Address) {
				left = append(left, m.Address)
			}
			if _, found := slices.BinarySearch(failed, m.Address); found != isLateMachine {
				t.Errorf("%s is said to have failed: %t, want %t", m.Address, found, isLateMachine)
			}
			if _, found := slices.BinarySearch(done, m.Address); found == slices.Contains(left, m.Address) ||
				s.Machines[m.Address].HasJoined != found {
				t.Errorf("%s is said to be done: %t, and joined in the state: %t", m.Address, found,
					s.Machines[m.Address].HasJoined)
			}
		}
		if len(failed)+len(done)+len(early) != machines {
			t.Errorf("%d failed and %d done without %d, and there are %d", len(failed), len(done), len(early), machines)
		}

		heal()
		w.engine.SkipsUnreachable = false
		p, err = w.applyWithoutLimit()
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
		if p, err = w.applyWithoutLimit(); err != nil || !p.IsEmpty() {
			t.Errorf("not empty afterwards: %v", err)
		}
	})
}

// applyWithoutLimit is apply without a time limit.
func (w *world) applyWithoutLimit() (*plan.Plan, error) {
	p, err := w.engine.Prepare(w.t.Context())
	if err != nil {
		return nil, err
	}
	defer p.Close()
	return p.Plan, p.Apply(w.t.Context())
}

// checkReported checks that an error has one line for each expected machine, with the reason.
func (w *world) checkReported(err error, sick map[string]*brokenMachine, meant func(*brokenMachine) bool) {
	w.t.Helper()
	if err == nil {
		w.t.Fatal("no error")
	}
	counts := map[string]int{}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		address, reason, ok := strings.Cut(line, " (cluster.hcl:7): ")
		b := sick[address]
		if !ok || b == nil || !meant(b) {
			w.t.Errorf("a line about nothing that is broken: %q", line)
			continue
		}
		counts[address]++
		b.checkReason(w.t, reason)
	}
	for address, b := range sick {
		if want := meant(b); want && counts[address] != 1 {
			w.t.Errorf("%s, which %s, is said %d times", address, b.name, counts[address])
		}
	}
}

func (b *brokenMachine) checkReason(t testing.TB, reason string) {
	want := b.errorText
	if strings.Contains(want, "%s") {
		want = fmt.Sprintf(want, strings.TrimPrefix(b.address, "machine."))
	}
	if !strings.Contains(reason, want) {
		t.Errorf("of %s, which %s, is said %q, want %q", b.address, b.name, reason, want)
	}
}
