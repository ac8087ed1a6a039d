// Package kernel writes tables of packet rules to the kernel over netlink, in one transaction per change. Packets see
// the rules before or after a change, never a mix. It needs no program on the machine.
//
// The package encodes the messages itself. Existing libraries request a response for every message and have every rule
// echoed back, which dominates the cost of a change with thousands of services.
package kernel

import (
	"fmt"

	"clusterctl/daemons/nft"
)

// Kernel writes one table to the kernel. It is not safe for concurrent use.
type Kernel struct {
	applied    bool   // whether the kernel had the table's state after the last Apply
	generation uint32 // generation of the kernel's ruleset when the rules were last seen to be correct
}

// Apply updates the kernel's rules to the table. The first time, and after an error, it reads the kernel's rules and
// compares. After that, it only sends what has changed.
func (k *Kernel) Apply(t *nft.Table) error {
	s, err := openSocket()
	if err != nil {
		return err
	}
	defer s.close()
	before, err := s.generation()
	if err != nil {
		return err
	}
	change, whole, seen := t.Changes(), false, k.generation
	if !k.applied {
		if change, whole, err = compareTable(s, t); err != nil {
			return err
		}
		seen = before
	}
	k.applied = false
	expected := before
	if !change.IsEmpty() || whole {
		b := newBatch(t)
		if whole {
			b.replace()
		}
		if err := b.change(change); err != nil {
			return fmt.Errorf("write the rules of the table %s: %w", t.Name, err)
		}
		if err := s.commit(b); err != nil {
			return fmt.Errorf("change the rules of the table %s: %w", t.Name, err)
		}
		expected++
	}
	after, err := s.generation()
	if err != nil {
		return err
	}
	// If the generation has advanced by more than this transaction, another program has changed rules and may have
	// flushed this table. Keep the old generation, so that IsIntact checks the rules.
	if k.generation = seen; seen == before && after == expected {
		k.generation = after
	}
	t.MarkApplied()
	k.applied = true
	return nil
}

// compareTable reads the kernel's table and returns the changes to make. whole reports whether the table must be
// replaced.
func compareTable(s *socket, t *nft.Table) (change *nft.Change, whole bool, err error) {
	found, exists, err := s.read(t)
	if err != nil {
		return nil, false, fmt.Errorf("read the rules of the table %s: %w", t.Name, err)
	}
	if exists {
		if change, ok := t.DiffFrom(found); ok {
			return change, false, nil
		}
	}
	change, _ = t.DiffFrom(nft.KernelTable{})
	return change, true, nil
}

// IsIntact reports whether the kernel still has the rules. If no program has changed any rules, that is known at once.
// Otherwise it checks the base chains, which detects a flush. With deep, it checks everything, which detects every
// edit.
func (k *Kernel) IsIntact(t *nft.Table, deep bool) (bool, error) {
	if !k.applied {
		return true, nil // the next Apply compares
	}
	s, err := openSocket()
	if err != nil {
		return false, err
	}
	defer s.close()
	generation, err := s.generation()
	if err != nil || generation == k.generation {
		return err == nil, err
	}
	if !deep {
		return s.hasBaseRules(t)
	}
	change, whole, err := compareTable(s, t)
	if err != nil {
		return false, err
	}
	if whole || !change.IsEmpty() {
		return false, nil
	}
	k.generation = generation
	return true, nil
}

// Invalidate makes the next Apply compare everything, for cases in which the kernel may have lost the rules.
func (k *Kernel) Invalidate() { k.applied = false }

// IsApplied reports whether the last Apply succeeded and Invalidate was not called since.
func (k *Kernel) IsApplied() bool { return k.applied }

// Remove removes a table if it exists.
func Remove(family nft.Family, name string) error {
	s, err := openSocket()
	if err != nil {
		return err
	}
	defer s.close()
	b := &batch{family: family, table: name}
	b.start()
	b.removeTable()
	if err := s.commit(b); err != nil {
		return fmt.Errorf("remove the table %s: %w", name, err)
	}
	return nil
}

// Generation returns the generation of the kernel's ruleset. It increases with every change by any program.
func Generation() (uint32, error) {
	s, err := openSocket()
	if err != nil {
		return 0, err
	}
	defer s.close()
	return s.generation()
}
