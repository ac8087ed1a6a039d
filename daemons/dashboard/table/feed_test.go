package table

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// server is an API server of one kind, whose lists and watches a test controls.
type server struct {
	mu      sync.Mutex
	names   []string
	lists   int
	watches int
	fail    func(isWatch bool) error // nil means no failure
	pages   int                      // names per page; all if 0

	events chan string // the next watch sends these; "" ends it
}

func newServer(names ...string) *server { return &server{names: names, events: make(chan string)} }

func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// awaitWatch waits until a watch has begun, which receives events.
func (s *server) awaitWatch(t *testing.T) {
	t.Helper()
	until(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.watches > 0
	}, func() string { return "the server has no watch" })
}

func tableRowOf(name string) string {
	return fmt.Sprintf(`{"cells":[%q,"5d"],"object":{"metadata":{"name":%q,"uid":%q,"resourceVersion":"7"}}}`, name, name,
		"uid-"+name)
}

func tableOf(names []string, more string) string {
	rows := make([]string, len(names))
	for i, name := range names {
		rows[i] = tableRowOf(name)
	}
	return `{"kind":"Table","metadata":{"resourceVersion":"5"` + more +
		`},"columnDefinitions":[{"name":"Name","type":"string"},{"name":"Age","type":"string"}],"rows":[` +
		strings.Join(rows, ",") + `]}`
}

func event(kind, name string) string {
	return `{"type":"` + kind + `","object":{"kind":"Table","metadata":{},"rows":[` + tableRowOf(name) + `]}}`
}

func (s *server) get(ctx context.Context, path, accept string) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	isWatch := strings.Contains(path, "watch=true")
	if s.fail != nil {
		if err := s.fail(isWatch); err != nil {
			return nil, err
		}
	}
	if accept != "application/json;as=Table;v=v1;g=meta.k8s.io,application/json" {
		return nil, apierrors.NewBadRequest("not a table")
	}
	if !isWatch {
		s.lists++
		names, more := s.names, ""
		if s.pages > 0 {
			first := 0
			if _, token, ok := strings.Cut(path, "continue="); ok {
				_, _ = fmt.Sscan(token, &first) // the tokens are of this server
			}
			names = s.names[first:min(first+s.pages, len(s.names))]
			if first+s.pages < len(s.names) {
				more = fmt.Sprintf(`,"continue":"%d"`, first+s.pages)
			}
		}
		return &http.Response{Body: io.NopCloser(strings.NewReader(tableOf(names, more)))}, nil
	}
	s.watches++
	r, w := io.Pipe()
	go func() {
		for {
			select {
			case <-ctx.Done():
				_ = w.CloseWithError(ctx.Err())
				return
			case text := <-s.events:
				if text == "" {
					_ = w.Close()
					return
				}
				_, _ = io.WriteString(w, text) // the reader may be gone
			}
		}
	}()
	return &http.Response{Body: r}, nil
}

// open returns a view of a feed of the server, which ends with the test.
func (s *server) open(t *testing.T) *View {
	t.Helper()
	pool := NewPool(s.get)
	pool.backOff = backOff{time.Millisecond, 5 * time.Millisecond}
	feed, release, err := pool.Open(Kind{Version: "v1", Resource: "pods"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		release()
		pool.Stop()
		pool.Wait()
	})
	return feed.Subscribe(Query{Limit: MaxLimit}, func() {})
}

// shown returns the names of a window and its state.
func shown(t *testing.T, v *View) (string, State) {
	t.Helper()
	w, err := v.Window(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range w.Rows {
		names = append(names, r.Name)
	}
	return strings.Join(names, " "), w.State
}

// await waits until a view shows some names in a state.
func await(t *testing.T, v *View, names string, state State) {
	t.Helper()
	var got string
	var current State
	until(t, func() bool {
		got, current = shown(t, v)
		return got == names && current == state
	}, func() string {
		return fmt.Sprintf("the table is %s with %q, want %s with %q", current, got, state, names)
	})
}

// until waits for a condition. The failure has a description.
func until(t *testing.T, matches func() bool, describe func() string) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for tick := time.NewTicker(time.Millisecond); !matches(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal(describe())
		}
	}
}

func TestTablesFollowAWatch(t *testing.T) {
	s := newServer("b", "a")
	v := s.open(t)
	await(t, v, "a b", Live)
	s.events <- event("ADDED", "c")
	await(t, v, "a b c", Live)
	s.events <- event("DELETED", "a")
	s.events <- `{"type":"BOOKMARK","object":{"kind":"Table","metadata":{"resourceVersion":"9"},"rows":[]}}`
	await(t, v, "b c", Live)
	s.events <- "" // the watch ends, and the next one continues
	s.events <- event("ADDED", "d")
	await(t, v, "b c d", Live)
	if s.set(func() {}); s.lists != 1 {
		t.Errorf("%d lists", s.lists)
	}
}

func TestTablesAreListedInPages(t *testing.T) {
	var names []string
	for i := range 25 {
		names = append(names, fmt.Sprintf("p-%d", i))
	}
	s := newServer(names...)
	s.pages = 10
	v := s.open(t)
	await(t, v, strings.Join(names, " "), Live)
	if s.lists != 3 {
		t.Errorf("%d pages", s.lists)
	}
}

// An expired revision, an error of the server and a lost connection never empty a table.
func TestFailuresKeepTheRows(t *testing.T) {
	unavailable := apierrors.NewServiceUnavailable("restarting")
	for name, end := range map[string]string{
		"expired":  `{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}`,
		"an error": `{"type":"ERROR","object":{"kind":"Status","code":500,"reason":"InternalError"}}`,
		"garbage":  `{"type":`,
		"the end":  "",
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer("a", "b")
			v := s.open(t)
			await(t, v, "a b", Live)
			s.awaitWatch(t)
			s.set(func() { s.fail = func(bool) error { return unavailable } })
			s.events <- end
			if name == "garbage" {
				s.events <- ""
			}
			await(t, v, "a b", Reconnecting)
			s.set(func() { s.names, s.fail = []string{"b", "c"}, nil })
			if name == "expired" {
				await(t, v, "b c", Live)
				return
			}
			await(t, v, "a b", Live)
			s.events <- event("ADDED", "c")
			await(t, v, "a b c", Live)
		})
	}
}

func TestAnIncompleteListRemovesNoRows(t *testing.T) {
	s := newServer("a", "b", "c")
	v := s.open(t)
	await(t, v, "a b c", Live)
	s.awaitWatch(t)
	pagesLeft := 1
	s.set(func() {
		s.names, s.pages = []string{"x", "y"}, 1
		s.fail = func(bool) error {
			if pagesLeft--; pagesLeft < 0 {
				return apierrors.NewServiceUnavailable("the second page")
			}
			return nil
		}
	})
	s.events <- `{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}`
	await(t, v, "a b c x", Reconnecting)
	s.set(func() { s.fail = nil })
	await(t, v, "x y", Live)
}

func TestTablesThatCannotBeHadReportTheError(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for name, err := range map[string]error{
		"forbidden":    apierrors.NewForbidden(pods, "", nil),
		"not found":    apierrors.NewNotFound(pods, ""),
		"unauthorized": apierrors.NewUnauthorized("expired"),
	} {
		s := newServer("a")
		s.fail = func(bool) error { return err }
		v := s.open(t)
		if got := v.feed.Await(t.Context()); !errors.Is(got, err) {
			t.Errorf("%s: %v", name, got)
		}
		if _, got := v.Window(time.Now()); !errors.Is(got, err) {
			t.Errorf("%s: the window: %v", name, got)
		}
	}
}

// A visitor who loses the right to read sees no rows any more.
func TestRowsDisappearWithTheRightToReadThem(t *testing.T) {
	s := newServer("a")
	v := s.open(t)
	await(t, v, "a", Live)
	s.awaitWatch(t)
	s.set(func() { s.fail = func(bool) error { return apierrors.NewUnauthorized("expired") } })
	s.events <- ""
	until(t, func() bool {
		_, err := v.Window(time.Now())
		return apierrors.IsUnauthorized(err)
	}, func() string { return "the rows are still shown" })
	if len(v.feed.rows) != 0 {
		t.Error("the rows are still in memory")
	}
}

func TestServersWithoutTablesAreShownByName(t *testing.T) {
	list := `{"kind":"ThingList","metadata":{"resourceVersion":"1"},"items":[` +
		`{"metadata":{"name":"a","uid":"1","creationTimestamp":"2026-05-01T00:00:00Z"},"code":"x"}]}`
	var rows []*row
	p, err := readPage(strings.NewReader(list), func(r *row) error {
		rows = append(rows, r)
		return nil
	})
	if err != nil || len(rows) != 1 || rows[0].name != "a" || rows[0].created == 0 || len(p.columns) != 2 {
		t.Errorf("%+v %v %v", p, rows, err)
	}
	e := watchEvent{Type: "ADDED", Object: json.RawMessage(`{"kind":"Thing","code":"x","metadata":{"name":"b"}}`)}
	if rows, _, err := e.rows(); err != nil || len(rows) != 1 || rows[0].name != "b" {
		t.Errorf("an event: %v, %v", rows, err)
	}
}

func TestIncompleteListsAreErrors(t *testing.T) {
	whole := tableOf([]string{"a", "b"}, "")
	for n := range len(whole) {
		if _, err := readPage(strings.NewReader(whole[:n]), func(*row) error { return nil }); err == nil {
			t.Errorf("the first %d bytes are a list", n)
		}
	}
}

func TestFeedsAreSharedAndLimited(t *testing.T) {
	s := newServer("a")
	pool := NewPool(s.get)
	pool.linger = time.Hour
	defer pool.Wait()
	defer pool.Stop()
	kind := Kind{Version: "v1", Resource: "pods"}
	one, release, err := pool.Open(kind)
	if err != nil {
		t.Fatal(err)
	}
	other, releaseOther, err := pool.Open(kind)
	if err != nil || one != other {
		t.Errorf("the same kind has two feeds, %v", err)
	}
	release()
	release() // again, which has no effect
	releaseOther()
	if again, _, err := pool.Open(kind); err != nil || again != one {
		t.Errorf("a feed that lingers is not used again, %v", err)
	}
	for i := range maxFeeds {
		_, _, err = pool.Open(Kind{Version: "v1", Resource: fmt.Sprint("r", i)})
	}
	if !apierrors.IsTooManyRequests(err) {
		t.Errorf("more than %d feeds: %v", maxFeeds, err)
	}
	for _, bad := range []Kind{{Version: "v1"}, {Version: "v1", Resource: "pods/x"}, {Version: "..", Resource: "pods"},
		{Version: "v1", Resource: "pods?watch=true"}, {Version: "v1", Resource: "pods", Namespace: "../x"},
		{Group: "a/b", Version: "v1", Resource: "pods"}, {Version: "v1", Resource: "Pods%"}} {
		if _, _, err := pool.Open(bad); !apierrors.IsBadRequest(err) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
