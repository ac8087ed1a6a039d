package garbage

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
)

// ownerLocation is where an owner was looked up, and with which UID.
type ownerLocation struct {
	resource  schema.GroupVersionResource
	namespace string // empty for cluster-scoped owners
	name      string
	uid       types.UID
}

// absences records owners that the API server reported as missing, so that each of their dependents need not ask again.
// A UID is never reused, so an absent owner stays absent. The number of entries is limited to bound memory.
type absences struct{ locations *lru.Cache }

const maxAbsences = 500

func newAbsences() absences { return absences{lru.New(maxAbsences)} }

func (a absences) add(p ownerLocation) { a.locations.Add(p, true) }

func (a absences) has(p ownerLocation) bool {
	_, ok := a.locations.Get(p)
	return ok
}
