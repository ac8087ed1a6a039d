// Package kernel puts tables of packet rules into the kernel, over netlink and in one transaction per change: traffic
// sees the rules before or after it, never between. It needs no program on the machine.
//
// The messages are written here rather than by a library, because the ones that there are ask for an answer to every
// single message and have every rule sent back: with thousands of services that is most of what a change costs.
package kernel

import (
	"fmt"

	"clusterctl/daemons/nft"
)

// Kernel is one table in the kernel. It is not for several goroutines at once.
type Kernel struct {
	known      bool   // whether the kernel had what the table said when it was applied last
	generation uint32 // of the kernel's rules, when they were last seen to be right
}

// Apply makes the kernel's rules what the table says. The first time, and after a failure, what the kernel has is read
// and compared; afterwards only what has changed since is sent.
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
	// When the generation is not the one that our transaction alone would have made, somebody else has changed rules
	// meanwhile, and may have flushed this table. Then the older generation stays noted, so that Intact looks at the
	// rules.
	if k.generation = seen; seen == before && after == expected {
		k.generation = after
	}
	t.Done()
	k.known = true
	return nil
}

// compare returns what makes the kernel's table what it should be, and whether it has to be replaced as a whole.
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

// Intact reports whether the kernel still has what was put there. As long as nobody has changed any rules that is known
// at once. Else the base chains are looked at, which tells of a flushed table, and with deep everything, which tells of
// every edit.
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

// Forget has the next Apply compare everything, for when the kernel may no longer have what was put there.
func (k *Kernel) Forget() { k.known = false }

// Known reports whether the kernel had what the table said when it was last applied.
func (k *Kernel) Known() bool { return k.known }

// Remove removes a table, if it is there.
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

// Generation is the number that the kernel raises with every change of anybody's rules.
func Generation() (uint32, error) {
	s, err := open()
	if err != nil {
		return 0, err
	}
	defer s.close()
	return s.generation()
}
