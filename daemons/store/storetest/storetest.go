// Package storetest is the test suite that every store passes, the real one and the one in memory. So tests over the
// one in memory are valid for the other.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"clusterctl/daemons/store"
)

// Run runs the suite. The test owns the keys below its prefix; open is called once.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	s := open(t)
	for name, test := range map[string]func(*testing.T, context.Context, store.Store, string){
		"a transaction is done when its guards hold and not otherwise": testGuards,
		"a transaction is done whole at one revision":                  testAtomicity,
		"all there is comes as it was at one revision":                 testAll,
		"a watch delivers every change in order":                       testWatch,
		"concurrent guarded writers lose no update (S11)":              testWriters,
		"a key with a TTL goes away and is seen to":                    testTTL,
		"progress reaches watches of quiet prefixes":                   testProgress,
		"what there was is read as it was":                             testPast,
		"what was compacted is refused":                                testCompacted,
		"the store knows its size":                                     testSize,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			test(t, ctx, s, fmt.Sprintf("/test/%x/", name))
		})
	}
}

func mustCommit(t *testing.T, ctx context.Context, s store.Store, txn store.Txn) store.Result {
	t.Helper()
	r, err := s.Commit(ctx, txn)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func putTxn(key, value string, revision int64) store.Txn {
	return store.Txn{
		Guards: []store.Guard{{Key: key, Revision: revision}},
		Puts:   []store.Put{{Key: key, Value: []byte(value)}},
	}
}

func testSize(t *testing.T, ctx context.Context, s store.Store, prefix string) {
	mustCommit(t, ctx, s, putTxn(prefix+"a", "1", 0))
	sized, ok := s.(store.Sized)
	if !ok {
		t.Fatal("nobody says how large it is")
	}
	if n, err := sized.Size(ctx); err != nil || n <= 0 {
		t.Fatalf("%d bytes, %v", n, err)
	}
}

func testGuards(t *testing.T, ctx context.Context, s store.Store, prefix string) {
	key := prefix + "a"
	created := mustCommit(t, ctx, s, putTxn(key, "1", 0))
	if !created.Done {
		t.Fatal("a new key was refused")
	}
	if r := mustCommit(t, ctx, s, putTxn(key, "2", 0)); r.Done || r.Current[0] == nil ||
		string(r.Current[0].Value) != "1" ||
		r.Current[0].Revision != created.Revision {
		t.Fatalf("creating twice: %+v", r)
	}
	updated := mustCommit(t, ctx, s, putTxn(key, "2", created.Revision))
	if !updated.Done || updated.Revision <= created.Revision {
		t.Fatalf("update: %+v", updated)
	}
	if r := mustCommit(t, ctx, s, putTxn(key, "3", created.Revision)); r.Done {
		t.Fatal("a stale update was done")
	}
	kv, err := s.Get(ctx, key)
	if err != nil || kv == nil || string(kv.Value) != "2" || kv.Revision != updated.Revision {
		t.Fatalf("get: %+v, %v", kv, err)
	}
	r := mustCommit(t, ctx, s,
		store.Txn{Guards: []store.Guard{{Key: key, Revision: updated.Revision}}, Deletes: []string{key}})
	if kv, _ := s.Get(ctx, key); !r.Done || kv != nil {
		t.Fatalf("delete: %+v, %+v", r, kv)
	}
	if r := mustCommit(t, ctx, s, putTxn(key, "4", updated.Revision)); r.Done || r.Current[0] != nil {
		t.Fatalf("update of a deleted key: %+v", r)
	}
}

func testAtomicity(t *testing.T, ctx context.Context, s store.Store, prefix string) {
	mustCommit(t, ctx, s, putTxn(prefix+"b", "", 0))
	both := store.Txn{
		Guards: []store.Guard{{Key: prefix + "a"}, {Key: prefix + "b"}},
		Puts:   []store.Put{{Key: prefix + "a"}, {Key: prefix + "b", Value: []byte("x")}},
	}
	if r := mustCommit(t, ctx, s, both); r.Done || r.Current[0] != nil || r.Current[1] == nil {
		t.Fatalf("half a transaction: %+v", r)
	}
	if kv, _ := s.Get(ctx, prefix+"a"); kv != nil {
		t.Fatal("a refused transaction wrote")
	}
	both.Guards = both.Guards[:1]
	r := mustCommit(t, ctx, s, both)
	kvs, err := All(ctx, s, prefix)
	if err != nil || len(kvs) != 2 || kvs[0].Revision != r.Revision || kvs[1].Revision != r.Revision {
		t.Fatalf("range: %+v, %v", kvs, err)
	}
}

// All returns all keys below prefix.
func All(ctx context.Context, s store.Store, prefix string) (kvs []store.KeyValue, err error) {
	_, err = s.All(ctx, prefix, func(some []store.KeyValue) error {
		kvs = append(kvs, some...)
		return nil
	})
	return kvs, err
}

func testAll(t *testing.T, ctx context.Context, s store.Store, prefix string) {
	const many = 1000
	for i := range many {
		mustCommit(t, ctx, s, putTxn(fmt.Sprintf("%s%04d", prefix, i), "old", 0))
	}
	mustCommit(t, ctx, s, putTxn(strings.TrimSuffix(prefix, "/")+"0", "the next prefix", 0))
	before, err := s.Revision(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var got []store.KeyValue
	parts := 0
	revision, err := s.All(ctx, prefix, func(some []store.KeyValue) error {
		if parts++; parts == 1 { // a write during All is not part of its result
			mustCommit(
				t,
				ctx,
				s,
				store.Txn{
					Puts:    []store.Put{{Key: prefix + "0998", Value: []byte("new")}},
					Deletes: []string{prefix + "0999"},
				},
			)
		}
		got = append(got, some...)
		return nil
	})
	if err != nil || revision != before || parts < 2 || len(got) != many {
		t.Fatalf("%d keys in %d parts at %d, want %d at %d: %v", len(got), parts, revision, many, before, err)
	}
	for i, kv := range got {
		if kv.Key != fmt.Sprintf("%s%04d", prefix, i) || string(kv.Value) != "old" || kv.Revision <= 0 ||
			kv.Revision > before {
			t.Fatalf("%d. is %+v", i, kv)
		}
	}
	enough := errors.New("enough")
	if _, err := s.All(ctx, prefix, func([]store.KeyValue) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("taken no further: %v", err)
	}
	if _, err := s.All(ctx, prefix+"x", func([]store.KeyValue) error { return enough }); err != nil {
		t.Errorf("nothing: %v", err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.All(cancelled, prefix, func([]store.KeyValue) error { return nil }); !errors.Is(err,
		context.Canceled) {
		t.Errorf("nobody waits: %v", err)
	}
}

func testWatch(t *testing.T, ctx context.Context, s store.Store, prefix string) {
	r := mustCommit(t, ctx, s, putTxn(prefix+"a", "0", 0))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	early := Watch(ctx, s, prefix, r.Revision-1)
	for i := range 50 {
		mustCommit(
			t,
			ctx,
			s,
			store.Txn{
				Puts: []store.Put{{Key: prefix + "a", Value: fmt.Append(nil, i)}, {Key: fmt.Sprint(prefix, "n", i)}},
			},
		)
	}
	last := mustCommit(t, ctx, s, store.Txn{Deletes: []string{prefix + "a"}}).Revision
	lateWatch := Watch(ctx, s, prefix, r.Revision)
	if n := countUntil(t, early, last); n != 102 {
		t.Errorf("early watch saw %d events", n)
	}
	if n := countUntil(t, lateWatch, last); n != 101 {
		t.Errorf("late watch saw %d events", n)
	}
}

// countUntil counts the events up to a revision. Revisions must not decrease.
func countUntil(t *testing.T, batches <-chan WatchResult, until int64) (n int) {
	t.Helper()
	at := int64(0)
	for at < until {
		b := <-batches
		if b.Err != nil {
			t.Fatal(b.Err)
		}
		for _, e := range b.Events {
			if e.Revision < at || e.Deleted != (e.Value == nil) && e.Deleted {
				t.Fatalf("event %+v after revision %d", e, at)
			}
			at = e.Revision
			n++
		}
		at = max(at, b.Revision)
	}
	return n
}

func testWriters(t *testing.T, ctx context.Context, s store.Store, prefix string) {
	const people, times = 8, 25
	mustCommit(t, ctx, s, putTxn(prefix+"count", "0", 0))
	var wg sync.WaitGroup
	for range people {
		wg.Go(func() {
			for range times {
				if err := increment(ctx, s, prefix+"count"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if kv, err := s.Get(ctx, prefix+"count"); err != nil || string(kv.Value) != fmt.Sprint(people*times) {
		t.Fatalf("count is %s, %v", kv.Value, err)
	}
}

func increment(ctx context.Context, s store.Store, key string) error {
	kv, err := s.Get(ctx, key)
	for err == nil {
		var n int
		if _, err := fmt.Sscan(string(kv.Value), &n); err != nil {
			return err
		}
		r, err := s.Commit(ctx, putTxn(key, fmt.Sprint(n+1), kv.Revision))
		if err != nil || r.Done {
			return err
		}
		kv = r.Current[0]
	}
	return err
}

func testTTL(t *testing.T, ctx context.Context, s store.Store, prefix string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := mustCommit(t, ctx, s, store.Txn{Puts: []store.Put{{Key: prefix + "a", Value: []byte("x"), TTL: time.Second}}})
	for b := range Watch(ctx, s, prefix, r.Revision) {
		if len(b.Events) > 0 && b.Events[0].Deleted {
			break
		}
	}
	if kv, err := s.Get(ctx, prefix+"a"); err != nil || kv != nil {
		t.Fatalf("after its time: %v %v", kv, err)
	}
}

func testProgress(t *testing.T, ctx context.Context, s store.Store, prefix string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	from, err := s.Revision(ctx)
	if err != nil {
		t.Fatal(err)
	}
	quiet := Watch(ctx, s, prefix+"quiet/", from)
	until := mustCommit(t, ctx, s, putTxn(prefix+"loud", "", 0)).Revision
	ask := time.NewTicker(20 * time.Millisecond)
	defer ask.Stop()
	for {
		select {
		case b := <-quiet:
			if b.Err != nil || len(b.Events) > 0 {
				t.Fatalf("batch: %+v", b)
			}
			if b.Revision >= until {
				return
			}
		case <-ask.C:
			if err := s.Progress(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func testCompacted(t *testing.T, ctx context.Context, s store.Store, prefix string) {
	first := mustCommit(t, ctx, s, putTxn(prefix+"a", "1", 0)).Revision
	second := mustCommit(t, ctx, s, putTxn(prefix+"a", "2", first)).Revision
	mustCommit(t, ctx, s, putTxn(prefix+"a", "3", second))
	if err := s.Compact(ctx, second); err != nil {
		t.Fatal(err)
	}
	if err := s.Compact(ctx, first); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("compact what is: %v", err)
	}
	if b, ok := <-Watch(ctx, s, prefix, first-1); !ok || !errors.Is(b.Err, store.ErrCompacted) {
		t.Errorf("watch: %+v", b)
	}
}

func testPast(t *testing.T, ctx context.Context, s store.Store, prefix string) {
	var then int64
	for _, key := range []string{"a", "b", "c", "d"} {
		then = mustCommit(t, ctx, s, putTxn(prefix+key, "then", 0)).Revision
	}
	mustCommit(t, ctx, s, store.Txn{Deletes: []string{prefix + "b"}})
	mustCommit(
		t,
		ctx,
		s,
		store.Txn{
			Puts: []store.Put{{Key: prefix + "c", Value: []byte("now")}, {Key: prefix + "e", Value: []byte("now")}},
		},
	)
	read := func(after string, revision int64, limit int) string {
		t.Helper()
		kvs, count, err := s.Past(ctx, prefix, after, revision, limit)
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprint(count)
		for _, kv := range kvs {
			text += " " + strings.TrimPrefix(kv.Key, prefix) + "=" + string(kv.Value)
		}
		return text
	}
	for want, got := range map[string]string{
		"4 a=then b=then":        read("", then, 2),
		"2 c=then d=then":        read(prefix+"b", then, 2),
		"3 b=then c=then d=then": read(prefix+"a", then, 10),
		"3 a=then b=then c=then": read("", then-1, 10),
		"4 a=then c=now d=then e=now": func() string {
			now, err := s.Revision(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return read("", now, 10)
		}(),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if _, _, err := s.Past(ctx, prefix, "", then+1000, 1); !errors.Is(err, store.ErrFuture) {
		t.Errorf("of the future: %v", err)
	}
}
