package cache

import (
	"encoding/json"
	"sync"
	"unique"

	"k8s.io/apimachinery/pkg/labels"
)

// labelSets lets objects with equal labels share one set. Most objects of a kind have the same labels as many others.
type labelSets struct {
	mu              sync.Mutex
	current, former map[string]labels.Set // by their JSON; former is dropped when current is full
}

// maxGeneration is the maximum number of sets in current, and in former.
const maxGeneration = 2048

// sharedLabels serves all caches, because sets do not depend on the resource.
var sharedLabels labelSets

// get returns the set that raw encodes.
func (l *labelSets) get(raw []byte) (labels.Set, error) {
	if len(raw) <= len("{}") {
		return nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if set, ok := l.current[string(raw)]; ok {
		return set, nil
	}
	set, ok := l.former[string(raw)]
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
	if l.current == nil || len(l.current) >= maxGeneration {
		l.former, l.current = l.current, make(map[string]labels.Set, 64)
	}
	l.current[string(raw)] = set
	return set, nil
}
