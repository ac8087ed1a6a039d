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

// stream is an open watch.
type stream struct {
	t      testing.TB
	lines  chan object
	cancel context.CancelFunc
	media  string
}

// watch opens a watch, which ends with the test.
func (c *client) watch(t testing.TB, r call) *stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
	resp, err := c.request(ctx, r)
	if err != nil {
		cancel()
		t.Fatalf("watch %s: %v", r.path, err)
	}
	s := &stream{t: t, lines: make(chan object, 100), cancel: cancel, media: resp.Header.Get("Content-Type")}
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

// next returns the next event, or nil at the end of the stream.
func (s *stream) next() object {
	s.t.Helper()
	select {
	case e := <-s.lines:
		return e
	case <-time.After(40 * time.Second):
		s.t.Fatal("no event came")
	}
	return nil
}

// must checks the type and the name of the next event.
func (s *stream) must(kind, named string) object {
	s.t.Helper()
	e := s.next()
	if e["type"] != kind || at(e, "object.metadata.name") != any(named) {
		s.t.Fatalf("event %v of %v, want %s of %s", e["type"], at(e, "object.metadata.name"), kind, named)
	}
	o, _ := e["object"].(object)
	return o
}

func watches(t *testing.T, s *subject) {
	selector, made := s.some(t, 1)
	at1 := s.must(t, 200, get("%s?limit=1", s.collection())).text("metadata.resourceVersion")
	w := s.watch(
		t,
		get(
			"%s?watch=1&allowWatchBookmarks=true&resourceVersion=%s&labelSelector=%s",
			s.collection(),
			at1,
			url.QueryEscape(selector),
		),
	)
	if w.media != "application/json" {
		t.Errorf("content type %q", w.media)
	}
	_, label, _ := strings.Cut(selector, "=")
	o, path := s.new()
	o = with(o, "metadata.labels", object{"conformance": label})
	o = s.must(t, 201, post(s.collection(), o)).obj
	if got := w.must("ADDED", name(o)); version(got) != version(o) || got["kind"] != s.Kind ||
		got["apiVersion"] != s.Version {
		t.Errorf("added %v", got)
	}
	if _, some := decided[s.Kind]; some {
		return // the server itself changes it, which causes events
	}
	changed := s.must(
		t,
		200,
		patch(path, "merge-patch+json", object{"metadata": object{"annotations": object{"a": "b"}}}),
	)
	if got := w.must("MODIFIED", name(o)); version(got) != changed.text("metadata.resourceVersion") {
		t.Errorf("modified %v, want %s", got, changed.text("metadata.resourceVersion"))
	}
	// An object that leaves the selection is deleted for this watch, and one that returns is added.
	s.must(
		t,
		200,
		patch(path, "merge-patch+json", object{"metadata": object{"labels": object{"conformance": "other"}}}),
	)
	w.must("DELETED", name(o))
	s.must(t, 200, patch(path, "merge-patch+json", object{"metadata": object{"labels": object{"conformance": label}}}))
	w.must("ADDED", name(o))
	s.erase(t, path)
	for {
		e := w.next()
		if e["type"] == "MODIFIED" { // a deletion with a finalizer
			continue
		}
		if e["type"] != "DELETED" || at(e, "object.metadata.name") != any(name(o)) {
			t.Errorf("event %v of %v", e["type"], at(e, "object.metadata.name"))
		}
		break
	}
	short := s.watch(
		t,
		get("%s?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%%3D%s", s.collection(), made[0]),
	)
	short.must("ADDED", made[0])
	if e := short.next(); e != nil {
		t.Errorf("after its time a watch tells %v", e)
	}
	s.refused(
		t,
		get("%s?watch=1&resourceVersion=x", s.collection()),
		500,
		"",
		`resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax`,
	)
	s.refused(
		t,
		get("%s?watch=1&resourceVersion=1&resourceVersionMatch=NotOlderThan", s.collection()),
		422,
		"Invalid",
		"resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
	)
	s.refused(t, get("%s?watch=1&labelSelector=a%%20b", s.collection()), 400, "BadRequest", "")
}

// erase deletes an object despite its finalizers.
func (s *subject) erase(t testing.TB, path string) {
	t.Helper()
	if a := s.do(t, remove(path, object{"gracePeriodSeconds": 0})); a.code != 200 && a.code != 404 {
		t.Fatalf("delete %s: %d %s", path, a.code, a.raw)
	}
	a := s.do(t, get("%s", path))
	if a.code == 404 {
		return
	}
	if a.at("metadata.finalizers") != nil {
		s.do(t, patch(path, "merge-patch+json", object{"metadata": object{"finalizers": nil}}))
	}
	if s.Kind == "Namespace" {
		s.must(
			t,
			200,
			put(path+"/finalize", with(with(a.obj, "spec.finalizers", []any{}), "metadata.resourceVersion", "")),
		)
	}
	eventually(t, func() error {
		if a := s.do(t, get("%s", path)); a.code != 404 {
			return errStill
		}
		return nil
	})
}

func watchesInitially(t *testing.T, s *subject) {
	selector, made := s.some(t, 2)
	base := s.collection() + "?watch=1&labelSelector=" + url.QueryEscape(selector)
	for query, marked := range map[string]bool{
		"": false, "&resourceVersion=0": false,
		"&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan":                   true,
		"&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&resourceVersion=0": true,
	} {
		if strings.HasSuffix(query, "resourceVersion=0") {
			// Version 0 may return an old state, so the test only checks that there is an answer.
			s.watch(t, get("%s%s", base, query)).next()
			continue
		}
		w := s.watch(t, get("%s%s", base, query))
		got := []string{}
		for range made {
			e := w.next()
			if e["type"] != "ADDED" {
				t.Fatalf("%s: event %v", query, e)
			}
			n, _ := at(e, "object.metadata.name").(string)
			got = append(got, n)
		}
		if slices.Sort(got); !slices.Equal(got, made) {
			t.Errorf("%s: begins with %v, want %v", query, got, made)
		}
		if !marked {
			continue
		}
		e := w.next()
		if e["type"] != "BOOKMARK" || at(e, "object.kind") != any(s.Kind) {
			t.Errorf("%s: the end of what there is: %v", query, e)
		}
		mark, _ := at(e, "object.metadata.annotations").(object)
		if mark["k8s.io/initial-events-end"] != "true" || at(e, "object.metadata.resourceVersion") == nil {
			t.Errorf("%s: bookmark %v", query, e)
		}
	}
	s.refused(
		t,
		get("%s&sendInitialEvents=true", base),
		422,
		"Invalid",
		"sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
	)
	s.refused(
		t,
		get("%s?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=1", s.collection()),
		422,
		"Invalid",
		"sendInitialEvents is forbidden for list",
	)
}

func watchesAs(t *testing.T, s *subject) {
	selector, made := s.some(t, 1)
	base := s.collection() + "?watch=1&labelSelector=" + url.QueryEscape(selector)
	e := s.watch(t, get("%s", base).as(table)).next()
	row, _ := e["object"].(object)
	if row["kind"] != "Table" || at(row, "rows.0.object.metadata.name") != any(made[0]) ||
		at(row, "columnDefinitions.0.name") == nil {
		t.Errorf("table %v", e)
	}
	e = s.watch(t, get("%s", base).as(partial)).next()
	if at(e, "object.kind") != any("PartialObjectMetadata") || at(e, "object.metadata.name") != any(made[0]) ||
		at(e, "object.spec") != nil {
		t.Errorf("metadata alone %v", e)
	}
}
