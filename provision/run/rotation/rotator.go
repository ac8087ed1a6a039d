// Package rotation replaces authorities and keys, and the key that encrypts the store, in moves that each reach all
// machines before the next.
package rotation

import (
	"clusterctl/provision/plan"
	"clusterctl/provision/run/certificate"
	"clusterctl/provision/run/decide"
	"clusterctl/provision/run/ledger"
	"clusterctl/provision/run/roll"
	"clusterctl/provision/run/session"
)

// Rotator makes the moves of replacements.
type Rotator struct {
	Session   *session.Session
	Ledger    *ledger.Ledger
	Situation *decide.Situation
	Roller    *roll.Roller
	Lists     *certificate.RevocationLists // guarded by the ledger
	Plan      *plan.Plan                   // gets what was moved
	// Connect connects to the API with the present state.
	Connect func() (session.Cluster, error)
}
