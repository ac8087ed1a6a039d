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

// carrier maintains the rules of one address family.
type carrier interface {
	Ports(service string) []rules.Port
	SetService(service string, ports []rules.Port) error
	// Used reports whether the kernel needs rules of this family. A cluster without addresses of the family needs none.
	Used() bool
	Apply() error
	Intact(deep bool) (bool, error)
	Forget()
}

// nftables maintains the rules as an nftables table.
type nftables struct {
	table  *rules.Table
	kernel kernel.Kernel
}

func (c *nftables) Ports(service string) []rules.Port { return c.table.Ports(service) }
func (c *nftables) SetService(service string, ports []rules.Port) error {
	return c.table.SetService(service, ports)
}
func (c *nftables) Used() bool {
	return c.table.Family == nft.IPv4 || len(c.table.Keys()) > 0 || c.kernel.Known()
}
func (c *nftables) Apply() error                   { return c.kernel.Apply(c.table.Table) }
func (c *nftables) Intact(deep bool) (bool, error) { return c.kernel.Intact(c.table.Table, deep) }
func (c *nftables) Forget()                        { c.kernel.Forget() }

// chains maintains the rules as iptables chains.
type chains struct {
	*rules.Chains
	tables iptables.Tables
	// generation is the generation of the kernel's ruleset when the chains were last seen to be correct. Legacy
	// iptables does not change it.
	generation uint32
	older      bool
	any        bool // whether there was ever a service
}

func (c *chains) SetService(service string, ports []rules.Port) error {
	c.any = c.any || len(ports) > 0
	return c.Chains.SetService(service, ports)
}
func (c *chains) Used() bool { return c.Family == nft.IPv4 || c.any }

func (c *chains) Apply() error {
	before, err := kernel.Generation()
	if err != nil {
		return err
	}
	seen := c.generation
	if !c.tables.Known() {
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
	// Intact checks them.
	if c.generation = seen; seen == before && after == before+uint32(transactions) {
		c.generation = after
	}
	return nil
}

func (c *chains) Intact(deep bool) (bool, error) {
	generation, err := kernel.Generation()
	if err != nil {
		return false, err
	}
	if generation == c.generation && !c.older {
		return true, nil
	}
	there, err := c.tables.Intact(c.Chains, deep)
	if err == nil && there && deep {
		c.generation = generation
	}
	return there, err
}

func (c *chains) Forget() { c.tables.Forget() }

// newChains prepares the machine for a family's chains.
func newChains(f nft.Family, m rules.Machine, log *slog.Logger) (*chains, error) {
	if lacks := iptables.Missing(f); len(lacks) > 0 {
		return nil, fmt.Errorf(
			"the proxy mode iptables needs %s, which this machine lacks: install the package iptables",
			strings.Join(lacks, ", "),
		)
	}
	older, err := iptables.Older(f)
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
	return &chains{Chains: rules.NewChains(f, m), older: older}, nil
}

// newCarrier returns the carrier of a family for a mode.
func newCarrier(mode string, f nft.Family, m rules.Machine, relays *relays, log *slog.Logger) (carrier, error) {
	switch mode {
	case modeIPTables:
		return newChains(f, m, log)
	case modeUserspace:
		return newRelayed(f, m, relays)
	}
	table, err := rules.NewTable(f, m)
	if err != nil {
		return nil, err
	}
	return &nftables{table: table}, nil
}

// retire removes the rules that a proxy in another mode has left. The rules of the current mode are already in effect,
// so that packets always meet rules. Open connections continue, because the kernel tracks them.
func retire(mode string) error {
	var failures []error
	for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
		var err error
		if mode == modeIPTables {
			if err = kernel.Remove(f, rules.TableName); err != nil {
				err = fmt.Errorf("take away the rules of a former mode: %w", err)
			}
		} else if err = iptables.Remove(f); err != nil {
			err = fmt.Errorf("take away the rules of the mode iptables: %w", err)
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}
