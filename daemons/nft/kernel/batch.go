package kernel

import (
	"fmt"

	"golang.org/x/sys/unix"

	"clusterctl/daemons/nft"
)

// batch is the messages of one transaction.
type batch struct {
	message
	family nft.Family
	table  string
	t      *nft.Table
	last   uint32 // sequence number of the message that the kernel confirms
	sets   uint32 // number of sets in this transaction, which is also the ID of the last one
	notes  []note
}

// note describes the messages from a sequence number on, for errors.
type note struct {
	from uint32
	what string
}

func begin(t *nft.Table) *batch {
	b := &batch{family: t.Family, table: t.Name, t: t}
	b.start()
	b.about("table " + t.Name)
	b.addTable()
	return b
}

func (b *batch) start() {
	b.raw(unix.NFNL_MSG_BATCH_BEGIN, 0, unix.AF_UNSPEC, subsystem)
	b.end()
}

// finish ends the transaction and returns its bytes.
func (b *batch) finish() []byte {
	b.confirm()
	b.last = b.seq
	b.raw(unix.NFNL_MSG_BATCH_END, 0, unix.AF_UNSPEC, subsystem)
	b.end()
	return b.bytes
}

func (b *batch) about(what string) { b.notes = append(b.notes, note{b.seq + 1, what}) }

// what returns the description of a message.
func (b *batch) what(seq uint32) string {
	what := "the transaction"
	for _, n := range b.notes {
		if n.from > seq {
			break
		}
		what = n.what
	}
	return what
}

func (b *batch) addTable() {
	b.begin(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, b.family)
	b.text(unix.NFTA_TABLE_NAME, b.table)
	b.end()
}

// removeTable removes the table with its contents. It also succeeds if the table does not exist.
func (b *batch) removeTable() {
	b.addTable()
	b.begin(unix.NFT_MSG_DELTABLE, 0, b.family)
	b.text(unix.NFTA_TABLE_NAME, b.table)
	b.end()
}

// replace replaces the table by an empty one.
func (b *batch) replace() {
	b.removeTable()
	b.addTable()
}

// change adds the messages for a change.
func (b *batch) change(c *nft.Change) error {
	for _, name := range c.AddSets {
		b.about("set " + name)
		s, _ := b.t.Set(name)
		b.addSet(name, s)
	}
	for _, name := range c.AddChains {
		b.about("chain " + name)
		if err := b.addChain(name, b.t.Chain(name).Hook); err != nil {
			return err
		}
	}
	for name, list := range c.DelElements {
		b.about("elements that leave the set " + name)
		s, _ := b.t.Set(name)
		b.elements(unix.NFT_MSG_DELSETELEM, name, 0, s, list)
	}
	for _, name := range c.SetRules {
		b.about("rules of the chain " + name)
		b.flushChain(name)
		for _, rule := range b.t.Chain(name).Rules {
			if err := b.addRule(name, rule); err != nil {
				return err
			}
		}
	}
	for name, list := range c.AddElements {
		b.about("elements of the set " + name)
		s, _ := b.t.Set(name)
		b.elements(unix.NFT_MSG_NEWSETELEM, name, 0, s, list)
	}
	// The removed chains may jump to each other, so flush all before the first is removed.
	for _, name := range c.DelChains {
		b.flushChain(name)
	}
	for _, name := range c.DelChains {
		b.about("chain " + name)
		b.begin(unix.NFT_MSG_DELCHAIN, 0, b.family)
		b.text(unix.NFTA_CHAIN_TABLE, b.table)
		b.text(unix.NFTA_CHAIN_NAME, name)
		b.end()
	}
	for _, name := range c.DelSets {
		b.about("set " + name)
		b.begin(unix.NFT_MSG_DELSET, 0, b.family)
		b.text(unix.NFTA_SET_TABLE, b.table)
		b.text(unix.NFTA_SET_NAME, name)
		b.end()
	}
	return nil
}

var hooks = map[string]uint32{
	"prerouting": unix.NF_INET_PRE_ROUTING, "input": unix.NF_INET_LOCAL_IN, "forward": unix.NF_INET_FORWARD,
	"output": unix.NF_INET_LOCAL_OUT, "postrouting": unix.NF_INET_POST_ROUTING,
}

func (b *batch) addChain(name string, hook *nft.Hook) error {
	b.begin(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, b.family)
	b.text(unix.NFTA_CHAIN_TABLE, b.table)
	b.text(unix.NFTA_CHAIN_NAME, name)
	if hook != nil {
		number, ok := hooks[hook.Name]
		if !ok {
			return fmt.Errorf("chain %s: there is no hook %q", name, hook.Name)
		}
		at := b.nest(unix.NFTA_CHAIN_HOOK)
		b.number(unix.NFTA_HOOK_HOOKNUM, number)
		b.number(unix.NFTA_HOOK_PRIORITY, uint32(hook.Priority))
		b.shut(at)
		b.text(unix.NFTA_CHAIN_TYPE, hook.Type)
	}
	b.end()
	return nil
}

func (b *batch) flushChain(name string) {
	b.begin(unix.NFT_MSG_DELRULE, 0, b.family)
	b.text(unix.NFTA_RULE_TABLE, b.table)
	b.text(unix.NFTA_RULE_CHAIN, name)
	b.end()
}

func (b *batch) addRule(chain string, rule nft.Rule) error {
	// An anonymous map must precede the rule that uses it.
	balanced, err := b.balance(rule)
	if err != nil {
		return fmt.Errorf("chain %s: %w", chain, err)
	}
	b.begin(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, b.family)
	b.text(unix.NFTA_RULE_TABLE, b.table)
	b.text(unix.NFTA_RULE_CHAIN, chain)
	at := b.nest(unix.NFTA_RULE_EXPRESSIONS)
	for i, s := range rule {
		if err := b.statement(s, balanced[i]); err != nil {
			return fmt.Errorf("chain %s: %w", chain, err)
		}
	}
	b.shut(at)
	b.data(unix.NFTA_RULE_USERDATA, userdata(rule.Mark(b.family)))
	b.end()
	return nil
}
