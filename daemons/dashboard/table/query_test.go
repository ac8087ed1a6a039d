package table

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestCellsAreReadFromTheirText(t *testing.T) {
	for _, cells := range [][]any{
		{}, {"a"}, {"a", nil, 3, true, 1.5}, {"a,b", `q"uo\te`, "[x]", "{", "}", "<none>", "ü\n\u0000"},
		{[]any{"x", []any{1}}, map[string]any{"k": "v,"}, ""},
	} {
		text, err := json.Marshal(cells)
		if err != nil {
			t.Fatal(err)
		}
		r := newRow("u", "n", "name", string(text), nil, time.Time{})
		for i, want := range cells {
			text, ok := want.(string)
			if !ok && want != nil {
				encoded, err := json.Marshal(want)
				if err != nil {
					t.Fatal(err)
				}
				text = string(encoded)
			}
			if got := r.cell(i); got != text {
				t.Errorf("cell %d of %s is %q, want %q", i, r.cells, got, text)
			}
		}
		if got := r.cell(len(cells)); got != "" {
			t.Errorf("a cell after the last of %s is %q", r.cells, got)
		}
	}
}

func TestRowsShowTheirPresentAge(t *testing.T) {
	created := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	r := newRow("u", "shop", "web", `["web","5d",["1",2]]`, map[string]string{"app": "web"}, created)
	got := r.show(1, created.Add(90*time.Second))
	if string(got.Cells) != `["web","90s",["1",2]]` || got.Created != "2026-05-01T00:00:00Z" || got.UID != "u" {
		t.Errorf("%+v, cells %s", got, got.Cells)
	}
	if got := r.show(-1, created); string(got.Cells) != r.cells {
		t.Errorf("without an age: %s", got.Cells)
	}
}

func TestLongRowsAreShortened(t *testing.T) {
	r := newRow("u", "", "name", `["`+strings.Repeat("x", maxCells)+`"]`, nil, time.Time{})
	if r.cells != `["name"]` {
		t.Errorf("%d bytes are stored", len(r.cells))
	}
}

func TestFiltersSelectRows(t *testing.T) {
	columns := []Column{{Name: "Name"}, {Name: "Status"}, {Name: "Node"}}
	r := newRow("u", "shop", "web-1", `["web-1","CrashLoopBackOff","node-A, \"x\""]`,
		map[string]string{"app": "web", "tier": ""}, time.Time{})
	for filter, want := range map[string]bool{
		"": true, "WEB": true, "web crash": true, "web nothing": false, "shop/web": true, "shop": true,
		"NODE-a": true, `"x"`: true, `a,`: true, `","`: false, `[`: false, "label:app": true, "label:app=web": true,
		"label:app=we": false, "label:ap": false, "label:tier=": true, "status:crashloopbackoff": true,
		"status:Crash": false, "status:running": false, "label:app=web status:CrashLoopBackOff node": true, "ü": false,
	} {
		f := newFilter(filter, columns)
		if got := f.matches(r); got != want {
			t.Errorf("%q selects the row: %v", filter, got)
		}
	}
	f := newFilter("status:x", []Column{{Name: "Name"}})
	if f.matches(r) {
		t.Error("a status is found in a table without statuses")
	}
}

func TestTextsAreComparedNaturally(t *testing.T) {
	sorted := []string{"", "0", "1/2", "2", "10", "10a", "a", "a-2", "A-10", "b"}
	for i := range sorted {
		for j := range sorted {
			got := compareNatural(sorted[i], sorted[j])
			if got < 0 != (i < j) || got > 0 != (i > j) {
				t.Errorf("%q and %q: %d", sorted[i], sorted[j], got)
			}
		}
	}
	huge := strings.Repeat("9", 100)
	if compareNatural(huge, huge+"0") >= 0 || compareNatural("007", "7") != 0 {
		t.Error("numbers of many digits are not compared by their values")
	}
}

func TestColumnsSortRows(t *testing.T) {
	columns := []Column{{Name: "Name", Type: "string"}, {Name: "Count", Type: "integer"}, {Name: "Ready"}}
	at := func(seconds int64) time.Time { return time.Unix(1000+seconds, 0) }
	rows := []*row{
		newRow("1", "b", "web-10", `["web-10",9,"1/2"]`, nil, at(1)),
		newRow("2", "a", "web-9", `["web-9",10,"10/10"]`, nil, at(3)),
		newRow("3", "a", "web-10", `["web-10",null,"2/2"]`, nil, at(2)),
	}
	for sort, want := range map[string]string{
		"": "2 3 1", "name": "2 3 1", "-name": "1 3 2", "namespace": "2 3 1", "count": "3 1 2", "-count": "2 1 3",
		"age": "2 3 1", "-age": "1 3 2", "ready": "1 3 2", "nothing": "2 3 1",
	} {
		o := newOrder(sort, columns)
		var entries []entry
		for _, r := range rows {
			entries = append(entries, o.entry(r))
		}
		slices.SortFunc(entries, o.compare)
		var got []string
		for _, e := range entries {
			got = append(got, e.row.uid)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("by %q: %v, want %s", sort, got, want)
		}
	}
}

// A view that applies changes one by one has the rows of a view that is built from all rows.
func TestViewsFollowChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFeed(Kind{Version: "v1", Resource: "pods"}, nil, defaultBackOff())
		f.columns = []Column{{Name: "Name"}, {Name: "Count", Type: "integer"}}
		q := Query{Filter: rapid.SampledFrom([]string{"", "1", "label:a=1"}).Draw(t, "filter"),
			Sort: rapid.SampledFrom([]string{"", "-name", "count", "-age"}).Draw(t, "sort"), Limit: 100}
		followed := f.Subscribe(q, func() {})
		window := func(v *View) string {
			w, err := v.Window(time.Unix(0, 0))
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(w)
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
		for range rapid.IntRange(1, 30).Draw(t, "rounds") {
			for range rapid.IntRange(0, 5).Draw(t, "changes") {
				uid := rapid.StringMatching(`[a-f]`).Draw(t, "uid")
				cells := `["x",` + rapid.StringMatching(`[0-9]`).Draw(t, "count") + `]`
				labels := map[string]string{"a": rapid.StringMatching(`[01]`).Draw(t, "label")}
				kind := rapid.SampledFrom([]string{"ADDED", "MODIFIED", "DELETED"}).Draw(t, "kind")
				r := newRow(uid, "n", "name-"+uid, cells, labels, time.Unix(100, 0))
				if err := f.apply(kind, []*row{r}); err != nil {
					t.Fatal(err)
				}
			}
			if rapid.Bool().Draw(t, "look") {
				if got, want := window(followed), window(f.Subscribe(q, func() {})); got != want {
					t.Fatalf("%s, want %s", got, want)
				}
			}
		}
		if got, want := window(followed), window(f.Subscribe(q, func() {})); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	})
}
