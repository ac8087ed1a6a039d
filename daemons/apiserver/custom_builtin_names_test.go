package apiserver_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"clusterctl/daemons/store"
	"clusterctl/daemons/store/memory"
)

// ttlStore records the keys that are written with a time to live.
type ttlStore struct {
	store.Store
	mu      sync.Mutex
	expires map[string]bool
}

func (s *ttlStore) Commit(ctx context.Context, t store.Txn) (store.Result, error) {
	s.mu.Lock()
	for _, p := range t.Puts {
		s.expires[p.Key] = p.TTL > 0
	}
	s.mu.Unlock()
	return s.Store.Commit(ctx, t)
}

// hasTTL reports whether the last write of the key that ends in suffix had a time to live.
func (s *ttlStore) hasTTL(t *testing.T, suffix string) bool {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, expires := range s.expires {
		if strings.HasSuffix(key, suffix) {
			return expires
		}
	}
	t.Fatalf("no key that ends in %s was written", suffix)
	return false
}

// Custom resources are kept, and their deletion is answered with a status, also if their plural is that of a built-in
// kind.
// Proves S12.
func TestCustomResourcesNamedLikeBuiltInKindsHaveNoneOfTheirRules(t *testing.T) {
	memory := memory.New()
	t.Cleanup(memory.Close)
	s := &ttlStore{Store: memory, expires: map[string]bool{}}
	cfg := startConfig(t, s, nil)
	define := func(replaced ...string) (path string) {
		names := strings.NewReplacer(replaced...)
		path = names.Replace(cronTabPath)
		createDefinition(t, cfg, names.Replace(crontabs), path)
		if code, text := sendRequest(t, cfg, "POST", path, names.Replace(cronTabObject("a", ""))); code != 201 {
			t.Fatal(code, text)
		}
		return path
	}
	define("crontabs", "events", `"crontab"`, `"event"`, "CronTab", "Event", `"ct"`, `"cev"`)
	if s.hasTTL(t, "/default/a") {
		t.Error("a custom resource named events expires")
	}
	path := define("crontabs", "services", `"crontab"`, `"service"`, "CronTab", "Service", `"ct"`, `"csv"`)
	code, text := sendRequest(t, cfg, "DELETE", path+"/a", "")
	if code != 200 || !strings.Contains(text, `"kind":"Status"`) {
		t.Errorf("the deletion is answered with %d %s", code, text)
	}
	const event = `{"metadata":{"name":"b"},"involvedObject":{"namespace":"default"},"reason":"a","type":"Normal"}`
	if code, text := sendRequest(t, cfg, "POST", "/api/v1/namespaces/default/events", event); code != 201 {
		t.Fatal(code, text)
	}
	if !s.hasTTL(t, "/default/b") {
		t.Error("an event does not expire")
	}
}
