// Package objects applies the declared objects to the cluster while machines change, and records them.
package objects

import (
	"clusterctl/provision/run/decide"
	"clusterctl/provision/run/ledger"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// Applier applies the objects of a decision. Its methods are not called at the same time.
type Applier struct {
	Session   *session.Session
	Ledger    *ledger.Ledger
	Situation *decide.Situation
	Decision  *decide.Decision // its plan gets the objects that could not be compared before

	recreatedObjects []state.Object // objects that this run has deleted in order to create them again
}
