package garbage

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
)

// place is where an owner was looked for, and by which UID.
type place struct {
	resource  schema.GroupVersionResource
	namespace string // empty for cluster-scoped owners
	name      string
	uid       types.UID
}

// absences are owners that the server said are not there: the many that one owner leaves behind need not each ask
// again. A UID is never given twice, so what was absent once stays absent; only so many are kept, for the memory.
type absences struct{ places *lru.Cache }

const maxAbsences = 500

func newAbsences() absences { return absences{lru.New(maxAbsences)} }

func (a absences) add(p place) { a.places.Add(p, true) }

func (a absences) has(p place) bool {
	_, known := a.places.Get(p)
	return known
}
