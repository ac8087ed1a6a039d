package network

import (
	"errors"
	"log/slog"
	"time"

	"clusterctl/daemons/nft"
)

// compareInterval is how often the rules are compared completely with the kernel while other programs change theirs.
const compareInterval = 30 * time.Second

// tableWriter writes one table to the kernel. Package nft/kernel implements it.
type tableWriter interface {
	Apply(*nft.Table) error
	IsIntact(t *nft.Table, deep bool) (bool, error)
	Invalidate()
}

// policyTables are the tables of network policies in the kernel.
type policyTables struct {
	log        *slog.Logger
	open       func() tableWriter // returns a new writer of one table
	kernels    map[nft.Family]tableWriter
	needsApply bool // the kernel lacks changes of the tables
}

// isIntact reports whether the kernel has all rules. With whole, it checks every rule, otherwise only what a flush
// would remove. A table that cannot be read is checked again next time.
func (k *policyTables) isIntact(tables []*nft.Table, whole bool) bool {
	all := true
	for _, t := range tables {
		writer := k.kernels[t.Family]
		if writer == nil {
			continue
		}
		intact, err := writer.IsIntact(t, whole)
		if err != nil {
			k.log.Warn("check whether the rules of network policies are in the kernel", "family", t.Family,
				"error", err)
			continue
		}
		if !intact {
			k.log.Warn("another program changed the rules of network policies; restoring them", "family", t.Family)
			writer.Invalidate()
			k.needsApply, all = true, false
		}
	}
	return all
}

// apply writes the changed tables to the kernel.
func (k *policyTables) apply(tables []*nft.Table) error {
	var failures []error
	for _, t := range tables {
		if k.kernels[t.Family] == nil {
			k.kernels[t.Family] = k.open()
		}
		failures = append(failures, k.kernels[t.Family].Apply(t))
	}
	err := errors.Join(failures...)
	k.needsApply = err != nil
	return err
}
