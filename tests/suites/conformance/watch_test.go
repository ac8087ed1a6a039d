package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// watchStream is an open watch.
type watchStream struct {
	t      testing.TB
	lines  chan object
	cancel context.CancelFunc
	media  string
}

// watch opens a watch, which ends with the test.
func (c *client) watch(t testing.TB, r call) *watchStream {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
	resp, err := c.request(ctx, r)
	if err != nil {
		cancel()
		t.Fatalf("watch %s: %v", r.path, err)
	}
	s := &watchStream{t: t, lines: make(chan object, 100), cancel: cancel, media: resp.Header.Get("Content-Type")}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(s.lines)
		defer resp.Body.Close()
		in := bufio.NewReader(resp.Body)
		for {
			line, err := in.ReadBytes('\n')
			var event object
			if err != nil || json.Unmarshal(line, &event) != nil {
				return
			}
			select {
			case s.lines <- event:
			case <-ctx.Done():
				return
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	if resp.StatusCode != 200 {
		t.Fatalf("watch %s: %d", r.path, resp.StatusCode)
	}
	return s
}

// nextEvent returns the next event, or nil at the end of the stream.
func (s *watchStream) nextEvent() object {
	s.t.Helper()
	select {
	case e := <-s.lines:
		return e
	case <-time.After(40 * time.Second):
		s.t.Fatal("no event came")
	}
	return nil
}

// mustBeEvent checks the type and the name of the next event.
func (s *watchStream) mustBeEvent(kind, named string) object {
	s.t.Helper()
	e := s.nextEvent()
	if e["type"] != kind || valueAt(e, "object.metadata.name") != any(named) {
		s.t.Fatalf("event %v of %v, want %s of %s", e["type"], valueAt(e, "object.metadata.name"), kind, named)
	}
	o, _ := e["object"].(object)
	return o
}

func testWatch(t *testing.T, s *subject) {
	selector, made := s.createLabelled(t, 1)
	at1 := s.mustAnswer(t, 200, get("%s?limit=1", s.collection())).textAt("metadata.resourceVersion")
	w := s.watch(t, get("%s?watch=1&allowWatchBookmarks=true&resourceVersion=%s&labelSelector=%s", s.collection(), at1,
		url.QueryEscape(selector)))
	if w.media != "application/json" {
		t.Errorf("content type %q", w.media)
	}
	_, label, _ := strings.Cut(selector, "=")
	o, path := s.newObject()
	o = withValue(o, "metadata.labels", object{"conformance": label})
	o = s.mustAnswer(t, 201, post(s.collection(), o)).obj
	if got := w.mustBeEvent("ADDED", objectName(o)); resourceVersion(got) != resourceVersion(o) ||
		got["kind"] != s.Kind ||
		got["apiVersion"] != s.Version {
		t.Errorf("added %v", got)
	}
	if _, some := decidedConditions[s.Kind]; some {
		return // the server itself changes it, which causes events
	}
	changed := s.mustAnswer(t, 200, patch(path, "merge-patch+json",
		object{"metadata": object{"annotations": object{"a": "b"}}}))
	if got := w.mustBeEvent("MODIFIED",
		objectName(o)); resourceVersion(got) != changed.textAt("metadata.resourceVersion") {
		t.Errorf("modified %v, want %s", got, changed.textAt("metadata.resourceVersion"))
	}
	// An object that leaves the selection is deleted for this watch, and one that returns is added.
	s.mustAnswer(t, 200, patch(path, "merge-patch+json",
		object{"metadata": object{"labels": object{"conformance": "other"}}}))
	w.mustBeEvent("DELETED", objectName(o))
	s.mustAnswer(t, 200, patch(path, "merge-patch+json",
		object{"metadata": object{"labels": object{"conformance": label}}}))
	w.mustBeEvent("ADDED", objectName(o))
	s.deleteWithFinalizers(t, path)
	for {
		e := w.nextEvent()
		if e["type"] == "MODIFIED" { // a deletion with a finalizer
			continue
		}
		if e["type"] != "DELETED" || valueAt(e, "object.metadata.name") != any(objectName(o)) {
			t.Errorf("event %v of %v", e["type"], valueAt(e, "object.metadata.name"))
		}
		break
	}
	short := s.watch(t, get("%s?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%%3D%s", s.collection(),
		made[0]))
	short.mustBeEvent("ADDED", made[0])
	if e := short.nextEvent(); e != nil {
		t.Errorf("after its timeout, a watch has the event %v", e)
	}
	s.mustRefuse(t, get("%s?watch=1&resourceVersion=x", s.collection()), 500, "",
		`resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax`)
	s.mustRefuse(t, get("%s?watch=1&resourceVersion=1&resourceVersionMatch=NotOlderThan", s.collection()), 422,
		"Invalid", "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
	s.mustRefuse(t, get("%s?watch=1&labelSelector=a%%20b", s.collection()), 400, "BadRequest", "")
}

// deleteWithFinalizers deletes an object despite its finalizers.
func (s *subject) deleteWithFinalizers(t testing.TB, path string) {
	t.Helper()
	if a := s.do(t, remove(path, object{"gracePeriodSeconds": 0})); a.code != 200 && a.code != 404 {
		t.Fatalf("delete %s: %d %s", path, a.code, a.raw)
	}
	a := s.do(t, get("%s", path))
	if a.code == 404 {
		return
	}
	if a.valueAt("metadata.finalizers") != nil {
		s.do(t, patch(path, "merge-patch+json", object{"metadata": object{"finalizers": nil}}))
	}
	if s.Kind == "Namespace" {
		s.mustAnswer(t, 200, put(path+"/finalize", withValue(withValue(a.obj, "spec.finalizers", []any{}),
			"metadata.resourceVersion", "")))
	}
	eventually(t, func() error {
		if a := s.do(t, get("%s", path)); a.code != 404 {
			return errStillExists
		}
		return nil
	})
}

func testInitialEvents(t *testing.T, s *subject) {
	selector, made := s.createLabelled(t, 2)
	base := s.collection() + "?watch=1&labelSelector=" + url.QueryEscape(selector)
	for query, marked := range map[string]bool{
		"": false, "&resourceVersion=0": false,
		"&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan":                   true,
		"&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&resourceVersion=0": true,
	} {
		if strings.HasSuffix(query, "resourceVersion=0") {
			// Version 0 may return an old state, so the test only checks that there is an answer.
			s.watch(t, get("%s%s", base, query)).nextEvent()
			continue
		}
		w := s.watch(t, get("%s%s", base, query))
		got := []string{}
		for range made {
			e := w.nextEvent()
			if e["type"] != "ADDED" {
				t.Fatalf("%s: event %v", query, e)
			}
			n, _ := valueAt(e, "object.metadata.name").(string)
			got = append(got, n)
		}
		if slices.Sort(got); !slices.Equal(got, made) {
			t.Errorf("%s: begins with %v, want %v", query, got, made)
		}
		if !marked {
			continue
		}
		e := w.nextEvent()
		if e["type"] != "BOOKMARK" || valueAt(e, "object.kind") != any(s.Kind) {
			t.Errorf("%s: the end of the existing objects: %v", query, e)
		}
		mark, _ := valueAt(e, "object.metadata.annotations").(object)
		if mark["k8s.io/initial-events-end"] != "true" || valueAt(e, "object.metadata.resourceVersion") == nil {
			t.Errorf("%s: bookmark %v", query, e)
		}
	}
	s.mustRefuse(t, get("%s&sendInitialEvents=true", base), 422, "Invalid",
		"sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
	s.mustRefuse(t, get("%s?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=1",
		s.collection()), 422, "Invalid", "sendInitialEvents is forbidden for list")
}

func testWatchFormats(t *testing.T, s *subject) {
	selector, made := s.createLabelled(t, 1)
	base := s.collection() + "?watch=1&labelSelector=" + url.QueryEscape(selector)
	e := s.watch(t, get("%s", base).withAccept(tableType)).nextEvent()
	row, _ := e["object"].(object)
	if row["kind"] != "Table" || valueAt(row, "rows.0.object.metadata.name") != any(made[0]) ||
		valueAt(row, "columnDefinitions.0.name") == nil {
		t.Errorf("table %v", e)
	}
	e = s.watch(t, get("%s", base).withAccept(partialType)).nextEvent()
	if valueAt(e, "object.kind") != any("PartialObjectMetadata") ||
		valueAt(e, "object.metadata.name") != any(made[0]) ||
		valueAt(e, "object.spec") != nil {
		t.Errorf("metadata alone %v", e)
	}
}
