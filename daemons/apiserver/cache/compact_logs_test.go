package cache

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// changeObjects creates, changes and deletes n objects of a kind, and returns the content of the events.
func changeObjects(t testing.TB, r *Resource, n int) []string {
	revision := int64(0)
	pad := strings.Repeat("x", 40)
	for round := range 3 {
		for i := range n {
			revision++
			c := resourceChange{key: fmt.Sprintf("a/%s-%d", pad, i), revision: revision}
			if round < 2 {
				c.entry = mustEntry(t, r.Kind, c.key, fmt.Sprintf("n%d", i%3), revision)
			}
			r.apply([]resourceChange{c})
		}
	}
	return logContent(r)
}

// logContent returns the content of all events of a log.
func logContent(r *Resource) []string {
	var out []string
	for _, e := range r.log.events {
		line := fmt.Sprint(e.Revision)
		for _, entry := range []*Entry{e.Prev, e.Entry} {
			if entry != nil {
				node, _ := entry.Field("spec.nodeName")
				line += fmt.Sprintf(" %s|%s|%s|%s|%d|%s|%s", entry.Key, entry.Namespace, entry.Name, node, entry.Size(),
					entry.AppendJSON(nil), entry.AppendMetadata(nil))
			}
		}
		if e.Entry == nil {
			line += fmt.Sprintf(" left %s", e.Deleted().AppendJSON(nil))
		}
		out = append(out, line)
	}
	return out
}

// Packed events have the same content as before in every log, and each is copied once.
// Proves S4.
func TestPackedEventsAreEqual(t *testing.T) {
	r := newResource(podKind(), &budget{})
	c, err := r.Watch(Topic{Field: 1, Value: "n1"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	want := changeObjects(t, r, 300)
	for range 2 {
		r.pack()
		for i, line := range logContent(r) {
			if line != want[i] {
				t.Fatalf("event %d says %s, want %s", i, line, want[i])
			}
		}
	}
	all := map[*Event]bool{}
	for _, e := range r.log.events {
		all[e] = true
		if e.Entry != nil && e.Entry.block == nil || e.Prev != nil && e.Prev.block == nil {
			t.Fatalf("the event at %d is not packed", e.Revision)
		}
	}
	found, _, err := c.Next()
	if err != nil || len(found) != 300 {
		t.Fatalf("%d events of a node, %v", len(found), err)
	}
	for _, e := range found {
		if !all[e] {
			t.Fatalf("the topic has an event at %d of its own", e.Revision)
		}
	}
}

// A current object is not packed. It is packed after its deletion.
// Proves S4.
func TestCurrentObjectsAreNotPacked(t *testing.T) {
	r := newResource(podKind(), &budget{})
	e := mustEntry(t, r.Kind, "a/x", "n1", 1)
	r.apply([]resourceChange{{key: "a/x", revision: 1, entry: e}})
	r.pack()
	if r.Get("a/x") != e || r.log.events[0].Entry != e {
		t.Fatal("an object was moved that there still is")
	}
	r.apply([]resourceChange{{key: "a/x", revision: 2}})
	r.pack()
	first, second := r.log.events[0], r.log.events[1]
	if first.Entry != second.Prev || first.Entry.block == nil {
		t.Fatal("an object that has gone is still there twice, or not packed")
	}
}

// Readers and writers may continue while the log is packed.
// Proves S4.
func TestReadsAndWritesContinueWhilePacking(t *testing.T) {
	r := newResource(podKind(), &budget{})
	want := changeObjects(t, r, 100)
	var wg sync.WaitGroup
	for range 4 {
		c, err := r.Watch(Topic{}, 0)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			events, _, err := c.Next()
			if err != nil || len(events) < len(want) {
				t.Errorf("%d events, %v", len(events), err)
				return
			}
			for _, e := range events {
				if e.Entry != nil {
					_ = e.Entry.AppendJSON(nil)
				} else {
					_ = e.Deleted().AppendJSON(nil)
				}
			}
		})
	}
	wg.Go(func() {
		for i := range 100 {
			revision := int64(1000 + i)
			r.apply([]resourceChange{{key: "b/y", revision: revision,
				entry: mustEntry(t, r.Kind, "b/y", "n1", revision)}})
		}
	})
	for range 20 {
		r.pack()
	}
	wg.Wait()
	r.pack()
	for i, line := range logContent(r)[:len(want)] {
		if line != want[i] {
			t.Fatalf("event %d says %s, want %s", i, line, want[i])
		}
	}
}

// BenchmarkCompactLogs measures the memory of a full log after much work, before and after packing.
func BenchmarkCompactLogs(b *testing.B) {
	held := func() float64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapInuse) / (1 << 20)
	}
	for range b.N {
		b.StopTimer()
		empty := held()
		r := newResource(podKind(), &budget{})
		changeObjects(b, r, 12288)
		before := held()
		b.StartTimer()
		r.pack()
		b.StopTimer()
		b.ReportMetric(before-empty, "MiB-before")
		b.ReportMetric(held()-empty, "MiB-after")
		runtime.KeepAlive(r)
		b.StartTimer()
	}
}
