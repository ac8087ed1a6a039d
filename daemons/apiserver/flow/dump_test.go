package flow

import (
	"context"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// dumpTable returns the cells of a table.
func dumpTable(t *testing.T, c *Controller, name string) (rows [][]string) {
	t.Helper()
	w := httptest.NewRecorder()
	c.ServeHTTP(w, httptest.NewRequest(http.MethodGet, DebugPath+name, nil))
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Fatalf("%s: %d %s", name, w.Code, w.Body)
	}
	for line := range strings.Lines(w.Body.String()) {
		rows = append(rows, regexp.MustCompile(`,\s*`).Split(strings.TrimSpace(line), -1))
	}
	return rows
}

func findRow(rows [][]string, name string) []string {
	for _, row := range rows {
		if row[0] == name {
			return row
		}
	}
	return nil
}

func TestDumpShowsWaitingRequests(t *testing.T) {
	c := newTestController(t, customLevels(limitedLevel("a", 1, 0, new(int32), queuingConfig(2, 1, 5))), 6)
	tickets := mustEnter(t, c, "a", 1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := enterAs(ctx, c, "a", "shop, 5\nx", Work{Seats: 1})
		done <- err
	}()
	waitFor(t, c, 1)
	levels := dumpTable(t, c, "dump_priority_levels")
	if got := strings.Join(levels[0], " "); got != "PriorityLevelName ActiveQueues IsIdle IsQuiescing "+
		"WaitingRequests ExecutingRequests DispatchedRequests RejectedRequests TimedoutRequests CancelledRequests" {
		t.Errorf("columns: %s", got)
	}
	if got := strings.Join(findRow(levels, "a"), " "); got != "a 1 false false 1 1 0 0 0 0" {
		t.Errorf("level: %s", got)
	}
	if got := strings.Join(findRow(levels, "exempt"), " "); got != "exempt 0 true false 0 0 0 0 0 0" {
		t.Errorf("an exempt level: %s", got)
	}
	pending := ""
	for _, row := range dumpTable(t, c, "dump_queues")[1:] {
		if row[0] == "a" {
			pending += row[2]
		}
	}
	if pending != "1" {
		t.Errorf("requests in the queues: %s", pending)
	}
	request := findRow(dumpTable(t, c, "dump_requests"), "a")
	if len(request) != 10 || request[1] != "a" || request[3] != "0" || request[4] != "shop_ 5_x" || request[6] != "1" {
		t.Errorf("request: %q", request)
	}
	if detailed := findRow(dumpTable(t, c, "dump_requests?includeRequestDetails=1"), "a"); len(detailed) != 18 ||
		detailed[10] != "a" ||
		detailed[11] != "get" ||
		detailed[16] != "pods" {
		t.Errorf("request with details: %q", detailed)
	}
	cancel()
	if err := <-done; err == nil {
		t.Error("a request that is given up has its turn")
	}
	if got := strings.Join(findRow(dumpTable(t, c, "dump_priority_levels"), "a"), " "); got != "a 0 false false 0 1 "+
		"0 0 0 1" {
		t.Errorf("level afterwards: %s", got)
	}
	tickets[0].Release()
	w := httptest.NewRecorder()
	c.ServeHTTP(w, httptest.NewRequest(http.MethodGet, DebugPath+"others", nil))
	if w.Code != http.StatusNotFound {
		t.Errorf("another table: %d", w.Code)
	}
}

// Users may configure any number of queues, so unused queues must cost nothing.
func TestUnusedQueuesCostNothing(t *testing.T) {
	l := &level{queuing: queuingConfig(10_000_000, 2, 50)}
	schema := &Schema{tally: &requestCounters{}}
	for flow := range uint64(3 * maxIdleQueues) {
		w := &waiter{schema: schema, work: Work{Seats: 1}}
		if !l.enqueue(w, flow*0x9e3779b97f4a7c15) {
			t.Fatal("a queue is full")
		}
		if next := l.next(0); next != w {
			t.Fatal("no request waits")
		}
		l.dequeue(w)
	}
	if n := len(l.queues); n > maxIdleQueues {
		t.Errorf("%d queues without waiting requests are kept", n)
	}
}
