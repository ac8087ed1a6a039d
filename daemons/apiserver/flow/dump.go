package flow

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// DebugPath serves the controller's current state. The paths below it and the columns are upstream's:
// https://kubernetes.io/docs/reference/debug-cluster/flow-control/
const DebugPath = "/debug/api_priority_and_fairness/"

// dumps maps the paths below DebugPath to the functions that make their tables.
var dumps = map[string]func(c *Controller, r *http.Request) [][]any{
	"dump_priority_levels": (*Controller).dumpLevels,
	"dump_queues":          (*Controller).dumpQueues,
	"dump_requests":        (*Controller).dumpRequests,
}

// DebugPaths returns the paths of the tables.
func DebugPaths() (paths []string) {
	for name := range dumps {
		paths = append(paths, DebugPath+name)
	}
	return paths
}

// ServeHTTP implements http.Handler, for the paths below DebugPath.
func (c *Controller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	dump := dumps[strings.TrimPrefix(r.URL.Path, DebugPath)]
	if dump == nil {
		http.NotFound(w, r)
		return
	}
	table := dump(c, r)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	out := tabwriter.NewWriter(w, 8, 0, 1, ' ', 0)
	for _, row := range table {
		words := make([]string, len(row))
		for i, cell := range row {
			words[i] = fmt.Sprint(cell)
		}
		if _, err := fmt.Fprintln(out, strings.Join(words, ",\t")); err != nil {
			return // the client has left
		}
	}
	_ = out.Flush() // the client may have left
}

// sortedLevels returns the levels, sorted by name. The caller holds c.mu.
func (c *Controller) sortedLevels() []*level {
	all := make([]*level, 0, len(c.levels))
	for _, l := range c.levels {
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b *level) int { return cmp.Compare(a.name, b.name) })
	return all
}

func (c *Controller) dumpLevels(*http.Request) [][]any {
	table := [][]any{
		{"PriorityLevelName", "ActiveQueues", "IsIdle", "IsQuiescing", "WaitingRequests", "ExecutingRequests",
			"DispatchedRequests", "RejectedRequests", "TimedoutRequests", "CancelledRequests"},
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.sortedLevels() {
		active := 0
		for _, q := range l.queues {
			if len(q.waiters) > 0 {
				active++
			}
		}
		var executing, dispatched int64
		var rejected [len(rejectionReasons)]int64
		for _, t := range c.tallies {
			if t.level != l.name {
				continue
			}
			executing += t.executing.Load()
			dispatched += t.dispatched.Load()
			for i := range rejected {
				rejected[i] += t.rejected[i].Load()
			}
		}
		quiescing := !l.isExempt && l.nominal == 0 && l.maxSeats == 0
		table = append(table, []any{l.name, active, executing == 0 && l.waiting == 0, quiescing, l.waiting, executing,
			dispatched, rejected[queueFull] + rejected[concurrencyLimit], rejected[timedOut], rejected[cancelled]})
	}
	return table
}

func (c *Controller) dumpQueues(*http.Request) [][]any {
	table := [][]any{
		{"PriorityLevelName", "Index", "PendingRequests", "ExecutingRequests", "SeatsInUse", "NextDispatchR",
			"InitialSeatsSum", "MaxSeatsSum", "TotalWorkSum"},
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.sortedLevels() {
		for _, i := range slices.Sorted(maps.Keys(l.queues)) {
			q := l.queues[i]
			// Seats belong to a level. The queue that a running request came from is not recorded.
			table = append(
				table,
				[]any{
					l.name,
					i,
					len(q.waiters),
					0,
					0,
					fmt.Sprintf("%.8fss", q.virtualStart),
					q.seats,
					q.seats,
					fmt.Sprintf("%.8fss", float64(q.seats)),
				},
			)
		}
	}
	return table
}

func (c *Controller) dumpRequests(r *http.Request) [][]any {
	head := []any{
		"PriorityLevelName",
		"FlowSchemaName",
		"QueueIndex",
		"RequestIndexInQueue",
		"FlowDistingsher",
		"ArriveTime",
		"InitialSeats",
		"FinalSeats",
		"AdditionalLatency",
		"StartTime",
	}
	details := r.URL.Query().Get("includeRequestDetails") != ""
	if details {
		head = append(head, "UserName", "Verb", "APIPath", "Namespace", "Name", "APIVersion", "Resource", "SubResource")
	}
	table := [][]any{head}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.sortedLevels() {
		for _, i := range slices.Sorted(maps.Keys(l.queues)) {
			for k, w := range l.queues[i].waiters {
				row := []any{
					l.name,
					w.schema.Name,
					i,
					k,
					cleanCell(w.flow),
					w.arrived.UTC().Format(time.RFC3339Nano),
					w.work.Seats,
					0,
					"0s",
					"<none>",
				}
				if q := w.request; details && q.Resource {
					row = append(row, cleanCell(w.user), q.Verb, cleanCell(q.Path), cleanCell(q.Namespace),
						cleanCell(q.Name), q.GroupVersion().String(), cleanCell(q.GroupVersionResource.Resource),
						cleanCell(q.Subresource))
				} else if details {
					row = append(row, cleanCell(w.user), q.Verb, cleanCell(q.Path), "", "", "", "", "")
				}
				table = append(table, row)
			}
		}
	}
	return table
}

// cleanCell returns a client's text without characters that would start another cell or row.
func cleanCell(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == ',' {
			return '_'
		}
		return r
	}, text)
}
