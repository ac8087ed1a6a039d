// Package leave takes machines out of the control plane and out of the cluster, and replaces them.
package leave

import (
	"context"

	"clusterctl/provision/run/decide"
	"clusterctl/provision/run/health"
	"clusterctl/provision/run/ledger"
	"clusterctl/provision/run/roll"
	"clusterctl/provision/run/session"
)

// Leaver removes, demotes and replaces machines.
type Leaver struct {
	Session   *session.Session
	Ledger    *ledger.Ledger
	Situation *decide.Situation
	Guard     *health.Guard
	Roller    *roll.Roller
	// LabelNodes gives nodes that were created in this run their labels.
	LabelNodes func(ctx context.Context) error
}
