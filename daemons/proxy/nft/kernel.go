package nft

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"clusterctl/daemons/proxy/rules"
)

// TableName is the name of the proxy's table, of family ip: upstream's.
const TableName = "kube-proxy"

// Kernel is the proxy's table in the kernel.
type Kernel struct {
	table  *nftables.Table
	have   *rules.Table // nil: not known
	chains map[string]*nftables.Chain
	maps   map[string]*nftables.Set
	sets   map[string]*nftables.Set
}

// bufferBytes is room for one transaction with all rules of a large cluster.
const bufferBytes = 64 << 20

func dial() (*nftables.Conn, error) {
	c, err := nftables.New(nftables.WithSockOptions(func(c *netlink.Conn) error {
		if err := c.SetWriteBuffer(bufferBytes); err != nil {
			return err
		}
		return c.SetReadBuffer(bufferBytes)
	}))
	if err != nil {
		return nil, fmt.Errorf("reach nftables: %w", err)
	}
	return c, nil
}

// Apply makes the kernel's rules what is wanted. The first time, and after a
// failure, the table is replaced as a whole; afterwards only what differs is changed.
func (k *Kernel) Apply(want *rules.Table) error {
	c, err := dial()
	if err != nil {
		return err
	}
	have := k.have
	k.have = nil
	if have == nil {
		k.table = &nftables.Table{Family: nftables.TableFamilyIPv4, Name: TableName}
		k.chains, k.maps, k.sets = map[string]*nftables.Chain{}, map[string]*nftables.Set{}, map[string]*nftables.Set{}
		c.AddTable(k.table) // so that there is one to delete
		c.DelTable(k.table)
		c.AddTable(k.table)
		have = &rules.Table{}
	}
	change := rules.Diff(have, want)
	if change.Empty() && have.Maps != nil {
		k.have = want
		return nil
	}
	if err := k.send(c, want, change); err != nil {
		return err
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("change the rules: %w", err)
	}
	k.have = want
	return nil
}

func (k *Kernel) send(c *nftables.Conn, want *rules.Table, change *rules.Change) error {
	for name, m := range want.Maps {
		if k.maps[name] != nil {
			continue
		}
		types := []nftables.SetDatatype{nftables.TypeInetProto, nftables.TypeInetService}
		if m.Key == rules.AddrProtoPort {
			types = append([]nftables.SetDatatype{nftables.TypeIPAddr}, types...)
		}
		kind, err := nftables.ConcatSetType(types...)
		if err != nil {
			return err
		}
		k.maps[name] = &nftables.Set{Table: k.table, Name: name, IsMap: true, Concatenation: true, KeyType: kind, DataType: nftables.TypeVerdict}
		if err := c.AddSet(k.maps[name], nil); err != nil {
			return fmt.Errorf("add map %s: %w", name, err)
		}
	}
	for _, name := range change.AddSets {
		k.sets[name] = &nftables.Set{Table: k.table, Name: name, Dynamic: true, HasTimeout: true, KeyType: nftables.TypeIPAddr,
			Timeout: time.Duration(want.Sets[name].Seconds) * time.Second, Size: 1 << 16}
		if err := c.AddSet(k.sets[name], nil); err != nil {
			return fmt.Errorf("add set %s: %w", name, err)
		}
	}
	for _, name := range change.AddChains {
		k.chains[name] = c.AddChain(k.chain(name, want.Chains[name].Hook))
	}
	for name, elements := range change.DelElements {
		if err := k.elements(name, want, elements, false, c.SetDeleteElements); err != nil {
			return err
		}
	}
	for name, elements := range change.AddElements {
		if err := k.elements(name, want, elements, true, c.SetAddElements); err != nil {
			return err
		}
	}
	for _, name := range change.SetRules {
		c.FlushChain(k.chains[name])
		for _, rule := range want.Chains[name].Rules {
			e, err := k.encode(c, rule)
			if err != nil {
				return err
			}
			c.AddRule(&nftables.Rule{Table: k.table, Chain: k.chains[name], Exprs: e})
		}
	}
	// Chains that go may lead to each other: all are emptied before the first goes.
	for _, name := range change.DelChains {
		c.FlushChain(k.chains[name])
	}
	for _, name := range change.DelChains {
		c.DelChain(k.chains[name])
		delete(k.chains, name)
	}
	for _, name := range change.DelSets {
		c.DelSet(k.sets[name])
		delete(k.sets, name)
	}
	return nil
}

func (k *Kernel) chain(name string, hook *rules.Hook) *nftables.Chain {
	chain := &nftables.Chain{Table: k.table, Name: name}
	if hook == nil {
		return chain
	}
	chain.Type = nftables.ChainType(hook.Type)
	chain.Priority = nftables.ChainPriorityRef(nftables.ChainPriority(hook.Priority))
	switch hook.Name {
	case "prerouting":
		chain.Hooknum = nftables.ChainHookPrerouting
	case "output":
		chain.Hooknum = nftables.ChainHookOutput
	case "postrouting":
		chain.Hooknum = nftables.ChainHookPostrouting
	}
	return chain
}

func (k *Kernel) elements(name string, want *rules.Table, all map[rules.Dest]rules.Verdict, values bool, do func(*nftables.Set, []nftables.SetElement) error) error {
	list := make([]nftables.SetElement, 0, len(all))
	for d, v := range all {
		e := nftables.SetElement{Key: key(want.Maps[name].Key, d)}
		if values {
			to, err := verdict(v)
			if err != nil {
				return err
			}
			e.VerdictData = to
		}
		list = append(list, e)
	}
	if err := inParts(list, func(part []nftables.SetElement) error { return do(k.maps[name], part) }); err != nil {
		return fmt.Errorf("change map %s: %w", name, err)
	}
	return nil
}

// Forget has the next Apply replace the whole table, for when the kernel may no
// longer have what was put there.
func (k *Kernel) Forget() { k.have = nil }

// Intact reports whether the kernel still has what was put there, as far as a cheap look
// tells: somebody who flushes the ruleset, or the table, takes the rules of every chain.
func (k *Kernel) Intact() (bool, error) {
	if k.have == nil {
		return true, nil // the next Apply replaces everything
	}
	c, err := dial()
	if err != nil {
		return false, err
	}
	for name, chain := range k.have.Chains {
		if chain.Hook == nil || len(chain.Rules) == 0 {
			continue
		}
		rules, err := c.GetRules(k.table, k.chains[name])
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return false, fmt.Errorf("look at chain %s: %w", name, err)
		}
		if len(rules) != len(chain.Rules) {
			return false, nil
		}
	}
	return true, nil
}

// Remove removes the table: the machine forwards to no service any more.
func Remove() error {
	c, err := dial()
	if err != nil {
		return err
	}
	table := &nftables.Table{Family: nftables.TableFamilyIPv4, Name: TableName}
	c.AddTable(table)
	c.DelTable(table)
	if err := c.Flush(); err != nil {
		return fmt.Errorf("remove the rules: %w", err)
	}
	return nil
}
