// Package run changes machines to what is declared. It connects to all of them at once, has their agents check
// everything, shows the result as a plan, and applies it: in parallel where that is safe, one after another where it is
// not. Decisions about single files are made in package role.
package run

import (
	"context"
	"time"

	"clusterctl/certs"
	"clusterctl/hcl/config"
	"clusterctl/provision/bundle"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// Engine carries out runs. All fields are required except those marked.
type Engine struct {
	Config           *config.Cluster
	Store            state.Store
	Bundle           *bundle.Bundle
	Dial             func(ctx context.Context, m config.Machine) (session.Agent, error)
	ConnectCluster   func(s *state.State, c *config.Cluster) (session.Cluster, error)
	Report           func(report.Event) // optional
	Parallelism      int                // machines at a time; zero means 32
	IsDestroy        bool               // remove the whole cluster
	IsPlanOnly       bool               // plan only: machines that are not reached become part of the plan
	Targets          []string           // only these addresses, if any
	Excludes         []string           // not these addresses
	SkipsUnreachable bool               // leave nodes that are not reached out of the run
	Replaces         []string           // machines, workloads and objects to be deleted and created again
	Downgrade        string             // the version or build of an older release that machines may go to
	AllowedLosses    []string           // addresses of objects that may be deleted although data is lost with them
	// Renews names certificates to be renewed early, as CertificateName names them; "all" means all.
	Renews        []string
	RenewOn       []string // machines, by address or name, whose certificates are renewed; empty means all
	IsRefreshOnly bool     // only compare the state with the machines and the API, and forget what is gone
	SkipsSnapshot bool     // take no snapshot of the store before a risky change
	// Run is a unique name of this run. Machines use it to detect changes by another run; empty disables that check.
	Run      string
	Operator string           // who runs this, shown to users of other runs at the same time
	Now      func() time.Time // nil means time.Now
}

// send reports an event with its time.
func (e *Engine) send(ev report.Event) {
	if e.Report != nil {
		ev.Time = e.now()
		e.Report(ev)
	}
}

func (e *Engine) now() time.Time {
	if e.Now != nil {
		return e.Now()
	}
	return time.Now()
}

func (e *Engine) parallelism() int {
	if e.Parallelism > 0 {
		return e.Parallelism
	}
	return 32
}

// newAuthorities makes the authorities of a new cluster.
func (e *Engine) newAuthorities() (map[string]certs.Pair, error) {
	pairs := map[string]certs.Pair{}
	for name, commonName := range certs.CommonNames {
		p, err := certs.NewCA(commonName, 0, e.now())
		if err != nil {
			return nil, err
		}
		pairs[name] = p
	}
	return pairs, nil
}
