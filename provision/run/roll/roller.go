// Package roll changes machines: those of the control plane one after another, and nodes within the budget. It drains
// them where the change requires it, and rolls back a release that does not work.
package roll

import (
	"clusterctl/provision/run/certificate"
	"clusterctl/provision/run/decide"
	"clusterctl/provision/run/health"
	"clusterctl/provision/run/ledger"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// Roller changes machines to what is declared, and records each in the ledger.
type Roller struct {
	Session   *session.Session
	Ledger    *ledger.Ledger
	Issuer    *certificate.Issuer
	Situation *decide.Situation
	Guard     *health.Guard
	Secrets   []string // values that the reasons of failures must not show

	hasRevoked bool // guarded by the ledger
}

// HasRevoked reports whether the Roller has revoked certificates of machines that stay.
func (r *Roller) HasRevoked() (found bool) {
	r.Ledger.View(func(*state.State) { found = r.hasRevoked })
	return found
}
