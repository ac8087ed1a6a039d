package proxy

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"clusterctl/daemons/nft"
	"clusterctl/daemons/nft/kernel"
	"clusterctl/daemons/proxy/iptables"
	"clusterctl/daemons/proxy/rules"
)

// These are the proxy modes.
const (
	modeNFTables  = "nftables"
	modeIPTables  = "iptables"
	modeUserspace = "userspace"
)

// ruleBackend maintains the rules of one address family.
type ruleBackend interface {
	Ports(service string) []rules.Port
	SetService(service string, ports []rules.Port) error
	// IsUsed reports whether the kernel needs rules of this family. A cluster without addresses of the family needs
	// none.
	IsUsed() bool
	Apply() error
	IsIntact(deep bool) (bool, error)
	Invalidate()
}

// nftBackend maintains the rules as an nftables table.
type nftBackend struct {
	table  *rules.Table
	kernel kernel.Kernel
}

func (c *nftBackend) Ports(service string) []rules.Port { return c.table.Ports(service) }
func (c *nftBackend) SetService(service string, ports []rules.Port) error {
	return c.table.SetService(service, ports)
}
func (c *nftBackend) IsUsed() bool {
	return c.table.Family == nft.IPv4 || len(c.table.Keys()) > 0 || c.kernel.IsApplied()
}
func (c *nftBackend) Apply() error                     { return c.kernel.Apply(c.table.Table) }
func (c *nftBackend) IsIntact(deep bool) (bool, error) { return c.kernel.IsIntact(c.table.Table, deep) }
func (c *nftBackend) Invalidate()                      { c.kernel.Invalidate() }

// iptablesBackend maintains the rules as iptables chains.
type iptablesBackend struct {
	*rules.Chains
	tables iptables.Tables
	// generation is the generation of the kernel's ruleset when the chains were last seen to be correct. Legacy
	// iptables does not change it.
	generation uint32
	isLegacy   bool
	hasService bool // whether there was ever a service
}

func (c *iptablesBackend) SetService(service string, ports []rules.Port) error {
	c.hasService = c.hasService || len(ports) > 0
	return c.Chains.SetService(service, ports)
}
func (c *iptablesBackend) IsUsed() bool { return c.Family == nft.IPv4 || c.hasService }

func (c *iptablesBackend) Apply() error {
	before, err := kernel.Generation()
	if err != nil {
		return err
	}
	seen := c.generation
	if !c.tables.IsApplied() {
		seen = before // everything is read and compared
	}
	transactions, err := c.tables.Apply(c.Chains)
	if err != nil {
		return err
	}
	after, err := kernel.Generation()
	if err != nil {
		return err
	}
	// If there were other transactions, another program may have flushed the chains. Keep the old generation, so that
	// IsIntact checks them.
	if c.generation = seen; seen == before && after == before+uint32(transactions) {
		c.generation = after
	}
	return nil
}

func (c *iptablesBackend) IsIntact(deep bool) (bool, error) {
	generation, err := kernel.Generation()
	if err != nil {
		return false, err
	}
	if generation == c.generation && !c.isLegacy {
		return true, nil
	}
	intact, err := c.tables.IsIntact(c.Chains, deep)
	if err == nil && intact && deep {
		c.generation = generation
	}
	return intact, err
}

func (c *iptablesBackend) Invalidate() { c.tables.Invalidate() }

// newIPTablesBackend prepares the machine for a family's chains.
func newIPTablesBackend(f nft.Family, m rules.Machine, log *slog.Logger) (*iptablesBackend, error) {
	if lacks := iptables.Missing(f); len(lacks) > 0 {
		return nil, fmt.Errorf(
			"the proxy mode iptables needs %s, which this machine lacks: install the package iptables",
			strings.Join(lacks, ", "))
	}
	older, err := iptables.IsLegacy(f)
	if err != nil {
		return nil, err
	}
	if f == nft.IPv4 && len(m.NodePorts) == 0 {
		// Node ports also work at 127.0.0.1, which needs route_localnet. A filter rule protects programs that listen on
		// 127.0.0.1.
		if err := os.WriteFile("/proc/sys/net/ipv4/conf/all/route_localnet", []byte("1"), 0o644); err != nil {
			log.Warn("node ports will not answer at 127.0.0.1", "error", err)
		}
	}
	return &iptablesBackend{Chains: rules.NewChains(f, m), isLegacy: older}, nil
}

// newRuleBackend returns the carrier of a family for a mode.
func newRuleBackend(mode string, f nft.Family, m rules.Machine, relays *userspaceRelays,
	log *slog.Logger) (ruleBackend, error) {
	switch mode {
	case modeIPTables:
		return newIPTablesBackend(f, m, log)
	case modeUserspace:
		return newUserspaceBackend(f, m, relays)
	}
	table, err := rules.NewTable(f, m)
	if err != nil {
		return nil, err
	}
	return &nftBackend{table: table}, nil
}

// removeOtherModes removes the rules that a proxy in another mode has left. The rules of the current mode are already
// in effect, so that packets always meet rules. Open connections continue, because the kernel tracks them.
func removeOtherModes(mode string) error {
	var failures []error
	for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
		var err error
		if mode == modeIPTables {
			if err = kernel.Remove(f, rules.TableName); err != nil {
				err = fmt.Errorf("take away the rules of a former mode: %w", err)
			}
		} else if err = iptables.RemoveChains(f); err != nil {
			err = fmt.Errorf("take away the rules of the mode iptables: %w", err)
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}
