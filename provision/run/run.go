// Package run changes machines to what is declared. It connects to all of them at once, has their agents check
// everything, shows the result as a plan, and applies it: in parallel where that is safe, one after another where it is
// not. Decisions about single files are made in package role.
package run

import (
	"context"
	"time"

	"clusterctl/hcl/config"
	"clusterctl/provision/bundle"
	"clusterctl/provision/run/decide"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// Engine carries out runs. All fields are required except those marked.
type Engine struct {
	Config         *config.Cluster
	Store          state.Store
	Bundle         *bundle.Bundle
	Dial           func(ctx context.Context, m config.Machine) (session.Agent, error)
	ConnectCluster func(s *state.State, c *config.Cluster) (session.Cluster, error)
	Report         func(report.Event) // optional
	Parallelism    int                // machines at a time; zero means 32
	decide.Options
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
