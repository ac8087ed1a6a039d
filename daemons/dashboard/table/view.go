package table

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// Row is an object in a window.
type Row struct {
	UID       string          `json:"uid"`
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	Cells     json.RawMessage `json:"cells"`
	Created   string          `json:"created"` // RFC 3339, or empty
}

// State is how current a table is.
type State string

const (
	Loading      State = "loading"      // the first list is not complete
	Live         State = "live"         // changes arrive as they happen
	Reconnecting State = "reconnecting" // the last known rows are shown until the API server answers
)

// Window is a part of a table.
type Window struct {
	Columns []Column `json:"columns"`
	Total   int      `json:"total"`   // rows of the table
	Matched int      `json:"matched"` // rows that the filter selects
	Offset  int      `json:"offset"`
	Rows    []Row    `json:"rows"`
	State   State    `json:"state"`
}

// maxPending limits the changes that a view applies one by one. After more it is built again.
const maxPending = 4096

// View is a filtered and sorted table. Create it with Feed.Subscribe, and close it. The feed's mutex guards it.
type View struct {
	feed    *Feed
	changed func() // reports that the window may have changed; called with the feed's mutex held

	query   Query
	filter  filter
	order   order
	entries []entry
	pending []change
	isStale bool
}

// change replaces a row. One of the rows is nil if the object is created or deleted.
type change struct{ before, after *row }

// record adds a change of the feed.
func (v *View) record(c change) {
	if v.isStale {
		return
	}
	if len(v.pending) >= maxPending {
		v.pending, v.isStale = nil, true
		return
	}
	v.pending = append(v.pending, c)
}

// Set changes the query.
func (v *View) Set(q Query) {
	v.feed.mu.Lock()
	defer v.feed.mu.Unlock()
	q = q.clean()
	if q.Filter != v.query.Filter || q.Sort != v.query.Sort {
		v.isStale, v.pending = true, nil
	}
	v.query = q
}

// Close ends the view.
func (v *View) Close() {
	v.feed.mu.Lock()
	defer v.feed.mu.Unlock()
	delete(v.feed.views, v)
}

// Window returns the rows that the query selects. An error means that the table cannot be had.
func (v *View) Window(now time.Time) (Window, error) {
	f := v.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return Window{}, f.err
	}
	v.refresh()
	q := v.query
	w := Window{Columns: f.columns, Total: len(f.rows), Matched: len(v.entries), State: f.state,
		Offset: min(q.Offset, len(v.entries)), Rows: []Row{}}
	if w.Columns == nil {
		w.Columns = []Column{}
	}
	age := slices.IndexFunc(f.columns, func(c Column) bool { return c.Name == "Age" })
	for _, e := range v.entries[w.Offset:min(w.Offset+q.Limit, len(v.entries))] {
		w.Rows = append(w.Rows, e.row.show(age, now))
	}
	return w, nil
}

// refresh brings the entries up to date with the feed.
func (v *View) refresh() {
	if v.isStale {
		v.filter, v.order = newFilter(v.query.Filter, v.feed.columns), newOrder(v.query.Sort, v.feed.columns)
		clear(v.entries) // so that former rows do not stay in memory
		v.entries = v.entries[:0]
		for _, held := range v.feed.rows {
			if v.filter.matches(held.row) {
				v.entries = append(v.entries, v.order.entry(held.row))
			}
		}
		slices.SortFunc(v.entries, v.order.compare)
		v.isStale, v.pending = false, nil
		return
	}
	if len(v.pending) == 0 {
		return
	}
	removed, added := map[*row]bool{}, map[*row]bool{}
	for _, c := range v.pending {
		if added[c.before] {
			delete(added, c.before)
		} else if c.before != nil {
			removed[c.before] = true
		}
		if c.after != nil && v.filter.matches(c.after) {
			added[c.after] = true
		}
	}
	v.pending = nil
	v.entries = slices.DeleteFunc(v.entries, func(e entry) bool { return removed[e.row] })
	if len(added) > 0 {
		v.merge(added)
	}
}

// merge adds rows at their places.
func (v *View) merge(added map[*row]bool) {
	more := make([]entry, 0, len(added))
	for r := range added {
		more = append(more, v.order.entry(r))
	}
	slices.SortFunc(more, v.order.compare)
	// From the end, so that no entry is overwritten before it is moved.
	i, j := len(v.entries)-1, len(more)-1
	v.entries = append(v.entries, more...)
	for at := len(v.entries) - 1; j >= 0; at-- {
		if i >= 0 && v.order.compare(v.entries[i], more[j]) > 0 {
			v.entries[at] = v.entries[i]
			i--
		} else {
			v.entries[at] = more[j]
			j--
		}
	}
}

// show returns the row as it is now. The column with the index age gets the present age.
func (r *row) show(age int, now time.Time) Row {
	out := Row{UID: r.uid, Namespace: r.namespace, Name: r.name, Cells: json.RawMessage(r.cells)}
	if r.created == 0 {
		return out
	}
	created := time.Unix(r.created, 0)
	out.Created = created.UTC().Format(time.RFC3339)
	if age < 0 {
		return out
	}
	var cells strings.Builder
	for i, value := range eachCell(r.cells) {
		cells.WriteByte("[,"[min(i, 1)])
		if i == age {
			value = `"` + duration.HumanDuration(max(now.Sub(created), 0)) + `"`
		}
		cells.WriteString(value)
	}
	if cells.Len() > 0 {
		out.Cells = json.RawMessage(cells.String() + "]")
	}
	return out
}
