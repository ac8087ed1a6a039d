package decide

import (
	"slices"
	"strings"

	"clusterctl/hcl/config"
)

// Options are what the user asks of a run, apart from the configuration.
type Options struct {
	IsDestroy        bool     // remove the whole cluster
	IsPlanOnly       bool     // plan only: machines that are not reached become part of the plan
	IsRefreshOnly    bool     // only compare the state with the machines and the API, and forget what is gone
	Targets          []string // only these addresses, if any
	Excludes         []string // not these addresses
	SkipsUnreachable bool     // leave nodes that are not reached out of the run
	SkipsSnapshot    bool     // take no snapshot of the store before a risky change
	Replaces         []string // machines, workloads and objects to be deleted and created again
	Downgrade        string   // the version or build of an older release that machines may go to
	AllowedLosses    []string // addresses of objects that may be deleted although data is lost with them
	// Renews names certificates to be renewed early, as certificate.Name names them; "all" means all.
	Renews  []string
	RenewOn []string // machines, by address or name, whose certificates are renewed; empty means all
}

// IsPartial reports whether a selection excludes something.
func (o Options) IsPartial() bool { return len(o.Targets)+len(o.Excludes) > 0 }

// IsSelected reports whether -target and -exclude select an address.
func (o Options) IsSelected(address string) bool {
	match := func(list []string) bool {
		return slices.ContainsFunc(list, func(t string) bool { return config.Includes(t, address) })
	}
	return (len(o.Targets) == 0 || match(o.Targets)) && !match(o.Excludes)
}

// IsReplaced reports whether the machine, workload or object of an address is to be deleted and created again.
func (o Options) IsReplaced(address string) bool {
	return slices.ContainsFunc(o.Replaces,
		func(t string) bool { return address == t || strings.HasPrefix(address, t+"[") })
}

// CanSkip reports whether a machine that is not reached is left out. Machines of the control plane are not, because
// later phases may need them.
func (o Options) CanSkip(m config.Machine, isRemoved bool) bool {
	return o.SkipsUnreachable && !isRemoved && !m.HasRole(config.RoleControlPlane)
}
