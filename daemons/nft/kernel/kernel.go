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
	known      bool   // whether the kernel had the table's state after the last Apply
	generation uint32 // generation of the kernel's ruleset when the rules were last seen to be correct
}

// Apply updates the kernel's rules to the table. The first time, and after an error, it reads the kernel's rules and
// compares. After that, it only sends what has changed.
func (k *Kernel) Apply(t *nft.Table) error {
	s, err := open()
	if err != nil {
		return err
	}
	defer s.close()
	before, err := s.generation()
	if err != nil {
		return err
	}
	change, whole, seen := t.Changes(), false, k.generation
	if !k.known {
		if change, whole, err = compare(s, t); err != nil {
			return err
		}
		seen = before
	}
	k.known = false
	expected := before
	if !change.Empty() || whole {
		b := begin(t)
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
	// flushed this table. Keep the old generation, so that Intact checks the rules.
	if k.generation = seen; seen == before && after == expected {
		k.generation = after
	}
	t.Done()
	k.known = true
	return nil
}

// compare reads the kernel's table and returns the changes to make. whole reports whether the table must be replaced.
func compare(s *socket, t *nft.Table) (change *nft.Change, whole bool, err error) {
	found, there, err := s.read(t)
	if err != nil {
		return nil, false, fmt.Errorf("read the rules of the table %s: %w", t.Name, err)
	}
	if there {
		if change, ok := t.Against(found); ok {
			return change, false, nil
		}
	}
	change, _ = t.Against(nft.Found{})
	return change, true, nil
}

// Intact reports whether the kernel still has the rules. If no program has changed any rules, that is known at once.
// Otherwise it checks the base chains, which detects a flush. With deep, it checks everything, which detects every
// edit.
func (k *Kernel) Intact(t *nft.Table, deep bool) (bool, error) {
	if !k.known {
		return true, nil // the next Apply compares
	}
	s, err := open()
	if err != nil {
		return false, err
	}
	defer s.close()
	generation, err := s.generation()
	if err != nil || generation == k.generation {
		return err == nil, err
	}
	if !deep {
		return s.hooked(t)
	}
	change, whole, err := compare(s, t)
	if err != nil {
		return false, err
	}
	if whole || !change.Empty() {
		return false, nil
	}
	k.generation = generation
	return true, nil
}

// Forget makes the next Apply compare everything, for cases in which the kernel may have lost the rules.
func (k *Kernel) Forget() { k.known = false }

// Known reports whether the last Apply succeeded and Forget was not called since.
func (k *Kernel) Known() bool { return k.known }

// Remove removes a table if it exists.
func Remove(family nft.Family, name string) error {
	s, err := open()
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
	s, err := open()
	if err != nil {
		return 0, err
	}
	defer s.close()
	return s.generation()
}
