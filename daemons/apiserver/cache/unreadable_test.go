package cache

import (
	"errors"
	"testing"

	"clusterctl/daemons/kinds"
)

// An object that cannot be read at present is reported as such, until a change makes it readable.
// Proves S12.
func TestUnreadableObjectsAreReportedUntilReadable(t *testing.T) {
	var secrets *kinds.Kind
	for _, k := range kinds.All() {
		if k.Resource == "secrets" {
			secrets = k
		}
	}
	r := newResource(secrets, &budget{})
	entry := func(key string, revision int64) *Entry {
		e, err := NewEntry(secrets, key,
			[]byte(`{"kind":"Secret","apiVersion":"v1","metadata":{"namespace":"a","name":"b"}}`), revision, nil)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	away := errors.New("the plugin is away")
	for i, c := range []struct {
		changes []resourceChange
		unread  bool
	}{
		{[]resourceChange{{key: "a/b", revision: 1, entry: entry("a/b", 1)}}, false},
		{[]resourceChange{{key: "a/b", revision: 2, err: away}}, true},
		{[]resourceChange{{key: "a/c", revision: 3, entry: entry("a/c", 3)}}, true},
		{[]resourceChange{{key: "a/b", revision: 4, entry: entry("a/b", 4)}, {key: "a/b", revision: 5, err: away}},
			true},
		{[]resourceChange{{key: "a/b", revision: 6, err: away}, {key: "a/b", revision: 7, entry: entry("a/b", 7)}},
			false},
		{[]resourceChange{{key: "a/b", revision: 8, err: away}}, true},
		{[]resourceChange{{key: "a/b", revision: 9}}, false}, // deleted
	} {
		r.apply(c.changes)
		for _, what := range []string{"", "a/", "a/b"} {
			if err := r.ReadError(what); errors.Is(err, away) != c.unread {
				t.Errorf("change %d: %q: %v", i, what, err)
			}
		}
		if err := errors.Join(r.ReadError("a/c"), r.ReadError("b/")); err != nil {
			t.Errorf("change %d: of others: %v", i, err)
		}
	}
	r.reset(nil, map[string]error{"a/b": away}, 10)
	if r.ReadError("") == nil {
		t.Error("an object that was loaded unread is reported as missing")
	}
	r.reset([]*Entry{entry("a/b", 11)}, nil, 11)
	if err := r.ReadError(""); err != nil {
		t.Errorf("after it was loaded: %v", err)
	}
}
