package cache

import (
	"errors"
	"testing"
)

// The size of events is limited, for one kind and for all together. A compaction of the store drops them.
func TestLogSizeIsLimited(t *testing.T) {
	k, shared := podKind(), &budget{}
	r := newResource(k, shared)
	fill := func(from, to int64, size int) {
		for revision := from; revision <= to; revision++ {
			e := mustEntry(t, k, "a/x", "n", revision)
			e.encoded = append(e.encoded, make([]byte, size)...)
			r.apply([]resourceChange{{key: "a/x", revision: revision, entry: e}})
		}
	}
	fill(1, 300, 900<<10)
	if kept := r.log.size(); kept > maxLogBytes+maxLogBytes/4 || kept != int(shared.used.Load()) ||
		kept < maxLogBytes/2 {
		t.Errorf("%d bytes are kept, %d by all", kept, shared.used.Load())
	}
	shared.used.Add(maxTotalLogBytes)
	fill(301, 310, 900<<10)
	if kept := r.log.size(); kept > minLogBytes+minLogBytes/4 {
		t.Errorf("%d bytes are kept where others keep much", kept)
	}
	fill(311, 320, 0)
	topic, err := r.Watch(Topic{Namespace: "a"}, 312)
	if err != nil {
		t.Fatal(err)
	}
	defer topic.Close()
	r.trim(315)
	if _, err := r.SnapshotAt(314); !errors.Is(err, ErrExpired) {
		t.Errorf("before the compaction: %v", err)
	}
	if _, err := r.SnapshotAt(315); err != nil {
		t.Errorf("at it: %v", err)
	}
	if _, _, err := topic.Next(); !errors.Is(err, ErrExpired) {
		t.Errorf("who was behind: %v", err)
	}
	if _, err := r.Watch(Topic{Namespace: "a"}, 315); err != nil {
		t.Errorf("a watch from the compaction on: %v", err)
	}
}

// The last events of a removed kind are deletions. An informer that did not get them would keep the objects for good,
// because it cannot list the kind any more.
func TestEndedLogsDeliverTheirLastEvents(t *testing.T) {
	l := newEventLog(0)
	cursor := &Cursor{log: l}
	l.append([]*Event{{Revision: 1}, {Revision: 2}}, maxLogBytes, 0)
	l.end()
	if events, _, err := cursor.Next(); err != nil || len(events) != 2 || !cursor.HasEnded() {
		t.Errorf("the last events: %d, %v", len(events), err)
	}
	if _, _, err := cursor.Next(); !errors.Is(err, ErrExpired) {
		t.Errorf("after them: %v", err)
	}
	if _, _, err := l.after(1); !errors.Is(err, ErrExpired) {
		t.Errorf("a new watch: %v", err)
	}
}
