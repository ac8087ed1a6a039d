package kernel

import (
	"fmt"

	"golang.org/x/sys/unix"

	"clusterctl/daemons/nft"
)

// batch is the messages of one transaction.
type batch struct {
	netlinkMessage
	family       nft.Family
	table        string
	nftTable     *nft.Table
	last         uint32 // sequence number of the message that the kernel confirms
	sets         uint32 // number of sets in this transaction, which is also the ID of the last one
	descriptions []messageNote
}

// messageNote describes the messages from a sequence number on, for errors.
type messageNote struct {
	from        uint32
	description string
}

func newBatch(t *nft.Table) *batch {
	b := &batch{family: t.Family, table: t.Name, nftTable: t}
	b.start()
	b.describeNext("table " + t.Name)
	b.addTable()
	return b
}

func (b *batch) start() {
	b.beginRaw(unix.NFNL_MSG_BATCH_BEGIN, 0, unix.AF_UNSPEC, subsystem)
	b.end()
}

// finish ends the transaction and returns its bytes.
func (b *batch) finish() []byte {
	b.requestConfirm()
	b.last = b.seq
	b.beginRaw(unix.NFNL_MSG_BATCH_END, 0, unix.AF_UNSPEC, subsystem)
	b.end()
	return b.bytes
}

func (b *batch) describeNext(what string) {
	b.descriptions = append(b.descriptions, messageNote{b.seq + 1, what})
}

// describe returns the description of a message.
func (b *batch) describe(seq uint32) string {
	what := "the transaction"
	for _, n := range b.descriptions {
		if n.from > seq {
			break
		}
		what = n.description
	}
	return what
}

func (b *batch) addTable() {
	b.begin(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, b.family)
	b.addText(unix.NFTA_TABLE_NAME, b.table)
	b.end()
}

// removeTable removes the table with its contents. It also succeeds if the table does not exist.
func (b *batch) removeTable() {
	b.addTable()
	b.begin(unix.NFT_MSG_DELTABLE, 0, b.family)
	b.addText(unix.NFTA_TABLE_NAME, b.table)
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
		b.describeNext("set " + name)
		s, _ := b.nftTable.Set(name)
		b.addSet(name, s)
	}
	for _, name := range c.AddChains {
		b.describeNext("chain " + name)
		if err := b.addChain(name, b.nftTable.Chain(name).Hook); err != nil {
			return err
		}
	}
	for name, list := range c.DelElements {
		b.describeNext("elements that leave the set " + name)
		s, _ := b.nftTable.Set(name)
		b.changeElements(unix.NFT_MSG_DELSETELEM, name, 0, s, list)
	}
	for _, name := range c.SetRules {
		b.describeNext("rules of the chain " + name)
		b.flushChain(name)
		for _, rule := range b.nftTable.Chain(name).Rules {
			if err := b.addRule(name, rule); err != nil {
				return err
			}
		}
	}
	for name, list := range c.AddElements {
		b.describeNext("elements of the set " + name)
		s, _ := b.nftTable.Set(name)
		b.changeElements(unix.NFT_MSG_NEWSETELEM, name, 0, s, list)
	}
	// The removed chains may jump to each other, so flush all before the first is removed.
	for _, name := range c.DelChains {
		b.flushChain(name)
	}
	for _, name := range c.DelChains {
		b.describeNext("chain " + name)
		b.begin(unix.NFT_MSG_DELCHAIN, 0, b.family)
		b.addText(unix.NFTA_CHAIN_TABLE, b.table)
		b.addText(unix.NFTA_CHAIN_NAME, name)
		b.end()
	}
	for _, name := range c.DelSets {
		b.describeNext("set " + name)
		b.begin(unix.NFT_MSG_DELSET, 0, b.family)
		b.addText(unix.NFTA_SET_TABLE, b.table)
		b.addText(unix.NFTA_SET_NAME, name)
		b.end()
	}
	return nil
}

var hookNumbers = map[string]uint32{
	"prerouting": unix.NF_INET_PRE_ROUTING, "input": unix.NF_INET_LOCAL_IN, "forward": unix.NF_INET_FORWARD,
	"output": unix.NF_INET_LOCAL_OUT, "postrouting": unix.NF_INET_POST_ROUTING,
}

func (b *batch) addChain(name string, hook *nft.Hook) error {
	b.begin(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, b.family)
	b.addText(unix.NFTA_CHAIN_TABLE, b.table)
	b.addText(unix.NFTA_CHAIN_NAME, name)
	if hook != nil {
		number, ok := hookNumbers[hook.Name]
		if !ok {
			return fmt.Errorf("chain %s: there is no hook %q", name, hook.Name)
		}
		at := b.openNested(unix.NFTA_CHAIN_HOOK)
		b.addUint32(unix.NFTA_HOOK_HOOKNUM, number)
		b.addUint32(unix.NFTA_HOOK_PRIORITY, uint32(hook.Priority))
		b.closeAttr(at)
		b.addText(unix.NFTA_CHAIN_TYPE, hook.Type)
	}
	b.end()
	return nil
}

func (b *batch) flushChain(name string) {
	b.begin(unix.NFT_MSG_DELRULE, 0, b.family)
	b.addText(unix.NFTA_RULE_TABLE, b.table)
	b.addText(unix.NFTA_RULE_CHAIN, name)
	b.end()
}

func (b *batch) addRule(chain string, rule nft.Rule) error {
	// An anonymous map must precede the rule that uses it.
	balanced, err := b.addRandomMaps(rule)
	if err != nil {
		return fmt.Errorf("chain %s: %w", chain, err)
	}
	b.begin(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, b.family)
	b.addText(unix.NFTA_RULE_TABLE, b.table)
	b.addText(unix.NFTA_RULE_CHAIN, chain)
	at := b.openNested(unix.NFTA_RULE_EXPRESSIONS)
	for i, s := range rule {
		if err := b.addStatement(s, balanced[i]); err != nil {
			return fmt.Errorf("chain %s: %w", chain, err)
		}
	}
	b.closeAttr(at)
	b.addBytes(unix.NFTA_RULE_USERDATA, userdata(rule.Mark(b.family)))
	b.end()
	return nil
}
