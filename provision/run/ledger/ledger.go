// Package ledger owns the state during a run: the lock that guards it in memory, and when it is written. A run records
// what it changes on machines and objects in parallel.
package ledger

import (
	"sync"

	"clusterctl/provision/state"
)

// Ledger is the state of a run with the store that it is written to. Its methods are safe for concurrent use.
type Ledger struct {
	store state.Store
	queue saveQueue

	mu        sync.Mutex
	state     *state.State
	unwritten int // changes of the state that are not yet written
}

// New returns a ledger of s, which the caller no longer changes by itself while other goroutines use the ledger.
func New(store state.Store, s *state.State) *Ledger { return &Ledger{store: store, state: s} }

// View calls read with the state. read must not keep the state, and must not call the ledger.
func (l *Ledger) View(read func(*state.State)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	read(l.state)
}

// Machine returns the state's entry for a machine.
func (l *Ledger) Machine(address string) state.Machine {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state.Machines[address]
}

// Record changes the state without writing it. The next write includes the change.
func (l *Ledger) Record(change func(*state.State)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l.state)
}

// Change changes the state, and returns when the change is on disk.
func (l *Ledger) Change(change func(*state.State)) error {
	l.Record(change)
	return l.Write()
}

// ChangeMachine changes the state's entry for a machine, and returns when the change is on disk.
func (l *Ledger) ChangeMachine(address string, change func(*state.Machine)) error {
	return l.Change(func(s *state.State) {
		m := s.Machines[address]
		change(&m)
		s.Machines[address] = m
	})
}

// Write returns when all earlier changes of the state are on disk.
func (l *Ledger) Write() error {
	return l.queue.join(func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.unwritten = 0
		return l.store.Write(l.state)
	})
}

// deferredShares is the number of writes over which a run spreads changes that may wait. So the total cost of writing
// grows linearly with the number of machines, not quadratically.
const deferredShares = 16

// Defer makes a change of the state that an interrupted run would find out again. The change is written with the next
// write, by Flush, or when more than a share of the machines is unwritten. With few machines it is written at once.
func (l *Ledger) Defer(change func(*state.State)) error {
	l.mu.Lock()
	change(l.state)
	l.unwritten++
	due := l.unwritten > len(l.state.Machines)/deferredShares
	l.mu.Unlock()
	if !due {
		return nil
	}
	return l.Write()
}

// Flush writes the changes that Defer has left unwritten.
func (l *Ledger) Flush() error {
	l.mu.Lock()
	owed := l.unwritten
	l.mu.Unlock()
	if owed == 0 {
		return nil
	}
	return l.Write()
}

// SaveVersion keeps a copy of the state as it is on disk.
func (l *Ledger) SaveVersion() error { return l.store.SaveVersion() }

// Held returns state.ErrLost if another run has taken over the lock of the state.
func (l *Ledger) Held() error { return l.store.Held() }

// Remove deletes the state of a destroyed cluster.
func (l *Ledger) Remove() error { return l.store.Remove() }
