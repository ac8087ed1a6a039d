package cache

import (
	"encoding/json"
	"sync"
	"unique"

	"k8s.io/apimachinery/pkg/labels"
)

// labelSets lets objects with the same labels share one set: most are one of many of their kind.
type labelSets struct {
	mu         sync.Mutex
	young, old map[string]labels.Set // by their JSON; old is forgotten with the next generation
}

// generation bounds how many sets are young, and how many old.
const generation = 2048

// sharedLabels is of all caches: sets are the same wherever they are used.
var sharedLabels labelSets

// of returns the set that is written so.
func (l *labelSets) of(raw []byte) (labels.Set, error) {
	if len(raw) <= len("{}") {
		return nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if set, ok := l.young[string(raw)]; ok {
		return set, nil
	}
	set, ok := l.old[string(raw)]
	if !ok {
		var read map[string]string
		if err := json.Unmarshal(raw, &read); err != nil {
			return nil, err
		}
		set = make(labels.Set, len(read))
		for k, v := range read {
			set[unique.Make(k).Value()] = unique.Make(v).Value()
		}
	}
	if l.young == nil || len(l.young) >= generation {
		l.old, l.young = l.young, make(map[string]labels.Set, 64)
	}
	l.young[string(raw)] = set
	return set, nil
}
