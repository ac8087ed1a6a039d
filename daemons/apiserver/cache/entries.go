package cache

import "sync"

// entries holds a resource's objects by key.
type entries struct {
	mu      sync.RWMutex
	byKey   map[string]*Entry
	highest int // the highest number of entries since the map was created
}

func (s *entries) get(key string) *Entry {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byKey[key]
}

func (s *entries) len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.byKey)
}

func (s *entries) replace(all []*Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byKey = make(map[string]*Entry, len(all))
	for _, e := range all {
		s.byKey[e.Key] = e
	}
	s.highest = len(s.byKey)
}

func (s *entries) apply(events []*Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range events {
		if e.Err != nil {
			continue // the last readable state stays
		}
		if e.Entry != nil {
			s.byKey[e.Entry.Key] = e.Entry
		} else {
			delete(s.byKey, e.Prev.Key)
		}
	}
	s.highest = max(s.highest, len(s.byKey))
}

// shrink frees the memory of removed entries, because a map never shrinks by itself.
func (s *entries) shrink() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.highest <= 4*len(s.byKey)+64 {
		return
	}
	fewer := make(map[string]*Entry, len(s.byKey))
	for key, e := range s.byKey {
		fewer[key] = e
	}
	s.byKey, s.highest = fewer, len(fewer)
}
