package managed

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var testKeys = Keys{`"name"`: true}

func mustKey(t *testing.T, live, next string) (Key, bool) {
	t.Helper()
	return Write{Keys: testKeys, Live: []byte(live), Next: []byte(next)}.Key()
}

func TestEqualChangesHaveTheSameKey(t *testing.T) {
	for name, pair := range map[string][2][2]string{
		"other values": {{`{"a":"1","b":2}`, `{"a":"9","b":2}`}, {`{"a":"x","b":5}`, `{"a":"y","b":5}`}},
		"other values in items": {
			{`{"l":[{"name":"x","v":1}]}`, `{"l":[{"name":"x","v":2}]}`},
			{`{"l":[{"name":"x","v":5}]}`, `{"l":[{"name":"x","v":6}]}`}},
		"the account and the version": {
			{`{"metadata":{"resourceVersion":"1","managedFields":[{"a":1}]}}`, `{"metadata":{}}`},
			{`{"metadata":{}}`, `{"metadata":{}}`}},
		"an addition": {{`{"a":{}}`, `{"a":{"b":"1"}}`}, {`{"a":{}}`, `{"a":{"b":"2"}}`}},
	} {
		a, okA := mustKey(t, pair[0][0], pair[0][1])
		b, okB := mustKey(t, pair[1][0], pair[1][1])
		if !okA || !okB || a != b {
			t.Errorf("%s: the keys differ", name)
		}
	}
}

func TestDifferentChangesHaveDifferentKeys(t *testing.T) {
	for name, pair := range map[string][2][2]string{
		"a value that changes":      {{`{"a":"1"}`, `{"a":"2"}`}, {`{"a":"1"}`, `{"a":"1"}`}},
		"which value changes":       {{`{"a":1,"b":1}`, `{"a":2,"b":1}`}, {`{"a":1,"b":1}`, `{"a":1,"b":2}`}},
		"kinds of values":           {{`{"a":1}`, `{"a":1}`}, {`{"a":null}`, `{"a":null}`}},
		"names":                     {{``, `{"a":1}`}, {``, `{"b":1}`}},
		"an item's key":             {{``, `{"l":[{"name":"x"}]}`}, {``, `{"l":[{"name":"y"}]}`}},
		"a scalar item":             {{``, `{"l":["x"]}`}, {``, `{"l":["y"]}`}},
		"the order of items":        {{``, `{"l":[{"name":"x"},{"name":"y"}]}`}, {``, `{"l":[{"name":"y"},{"name":"x"}]}`}},
		"creation and change":       {{``, `{"a":1}`}, {`{}`, `{"a":1}`}},
		"items that are not unique": {{`{"l":[{"v":1},{"v":2}]}`, `{"l":[{"v":2},{"v":1}]}`}, {`{"l":[{"v":1},{"v":2}]}`, `{"l":[{"v":3},{"v":4}]}`}},
		"a value below an item whose key changes": {
			{`{"l":[{"name":"x","o":{"v":1}}]}`, `{"l":[{"name":"y","o":{"v":1}}]}`},
			{`{"l":[{"name":"x","o":{"v":1}}]}`, `{"l":[{"name":"y","o":{"v":2}}]}`}},
		"metadata elsewhere": {{`{"s":{"metadata":{"resourceVersion":"1"}}}`, `{"s":{"metadata":{"resourceVersion":"1"}}}`}, {`{"s":{"metadata":{}}}`, `{"s":{"metadata":{}}}`}},
	} {
		a, okA := mustKey(t, pair[0][0], pair[0][1])
		b, okB := mustKey(t, pair[1][0], pair[1][1])
		if !okA || !okB || a == b {
			t.Errorf("%s: one key for both, or none: %v, %v", name, okA, okB)
		}
	}
}

func TestForeignEncodingsHaveNoKey(t *testing.T) {
	for _, text := range []string{"", "x", "{", `{"a"}`, `{"a":}`, `{"a":1`, `{"a":[}`, `{"a": 1}`, `{"a":"\`, `{"a":1}}`, `[1]`, `{"a":[1 ]}`} {
		if _, ok := mustKey(t, `{}`, text); ok {
			t.Errorf("%q has a key", text)
		}
	}
}

func TestAmbiguousValuesHaveNoKey(t *testing.T) {
	for live, next := range map[string]string{
		`{"a":"\u003c"}`:               `{"a":"<"}`,
		`{"a\u0026":"1"}`:              `{"a&":"1"}`,
		`{"l":[{"name":"\u003e"}]}`:    `{"l":[{"name":">"}]}`,
		`{"l":[[1],[1],"\u003e"]}`:     `{"l":[[1],[1],">"]}`,
		`{"l":[{},{},{"v":"\u003e"}]}`: `{"l":[{},{},{"v":">"}]}`,
	} {
		if _, ok := mustKey(t, live, next); ok {
			t.Errorf("%s and %s have a key", live, next)
		}
	}
	if _, ok := mustKey(t, `{"a":"\u0001","b":1}`, `{"a":"\u0001","b":2}`); !ok {
		t.Error("what stays has no key")
	}
}

func FuzzKey(f *testing.F) {
	f.Add(`{"a":[{"name":"x","v":[1,{}]}]}`, `{"metadata":{"managedFields":[]}}`)
	f.Fuzz(func(t *testing.T, live, next string) {
		a, ok := Write{Keys: testKeys, Live: []byte(live), Next: []byte(next)}.Key()
		if b, again := (Write{Keys: testKeys, Live: []byte(live), Next: []byte(next)}).Key(); a != b || ok != again {
			t.Error("a write has two keys")
		}
	})
}

func TestTimesAreOldOrCurrent(t *testing.T) {
	at := func(seconds int64) *metav1.Time { return &metav1.Time{Time: time.Unix(seconds, 0).UTC()} }
	entry := func(manager string, time *metav1.Time) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Time: time}
	}
	var m Memo
	before := []metav1.ManagedFieldsEntry{entry("a", at(100)), entry("b", at(200))}
	m.Put(Key{1}, before, []metav1.ManagedFieldsEntry{before[1], entry("a", at(300))})
	later := []metav1.ManagedFieldsEntry{entry("a", at(400)), entry("b", at(500))}
	for now, want := range map[int64]string{600: "ba", 450: "ab"} {
		got, ok := m.Get(Key{1}, later, time.Unix(now, 0))
		if !ok || len(got) != 2 || got[0].Manager+got[1].Manager != want {
			t.Fatalf("at %d: %v", now, got)
		}
		for _, e := range got {
			if wanted := map[string]int64{"a": now, "b": 500}[e.Manager]; e.Time.Unix() != wanted {
				t.Errorf("at %d: %s has the time %v", now, e.Manager, e.Time)
			}
		}
	}
	for i := range 3 * maxGeneration {
		m.Put(Key{2, byte(i), byte(i >> 8)}, nil, nil)
	}
	if _, ok := m.Get(Key{1}, later, time.Now()); ok || len(m.current)+len(m.former) > 2*maxGeneration {
		t.Errorf("%d are remembered", len(m.current)+len(m.former))
	}
}
