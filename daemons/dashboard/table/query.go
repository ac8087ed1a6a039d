package table

import (
	"cmp"
	"strconv"
	"strings"
)

// MaxLimit is the highest number of rows in a window.
const MaxLimit = 500

// maxWords limits the words of a filter.
const maxWords = 16

// Query selects the window of a table.
type Query struct {
	// Filter has words that must all occur in a row, without regard to case. label:KEY, label:KEY=VALUE and
	// status:VALUE select rows by a label and by the column Status.
	Filter string
	// Sort is the name of a column in lower case, with - in front for descending order. The default is name.
	Sort   string
	Offset int
	Limit  int
}

// clean returns the query with its limits enforced.
func (q Query) clean() Query {
	q.Offset, q.Limit = max(q.Offset, 0), min(max(q.Limit, 0), MaxLimit)
	return q
}

// filter decides which rows are shown.
type filter struct {
	words    []string // in lower case
	labels   []string
	statuses []string
	status   int // index of the column Status, or -1
}

func newFilter(text string, columns []Column) filter {
	f := filter{status: -1}
	for i, c := range columns {
		if strings.EqualFold(c.Name, "status") || f.status < 0 && strings.EqualFold(c.Name, "phase") {
			f.status = i
		}
	}
	words := strings.Fields(text)
	for _, word := range words[:min(len(words), maxWords)] {
		if label, ok := strings.CutPrefix(word, "label:"); ok {
			f.labels = append(f.labels, label)
		} else if status, ok := strings.CutPrefix(word, "status:"); ok {
			f.statuses = append(f.statuses, status)
		} else {
			f.words = append(f.words, strings.ToLower(word))
		}
	}
	return f
}

func (f *filter) matches(r *row) bool {
	for _, label := range f.labels {
		if !r.hasLabel(label) {
			return false
		}
	}
	for _, status := range f.statuses {
		if f.status < 0 || !strings.EqualFold(r.cell(f.status), status) {
			return false
		}
	}
	for _, word := range f.words {
		if !r.contains(word) {
			return false
		}
	}
	return true
}

// contains reports whether the name or a cell contains a word in lower case.
func (r *row) contains(word string) bool {
	if containsFold(r.name, word) {
		return true
	}
	if strings.Contains(word, "/") && containsFold(r.namespace+"/"+r.name, word) || containsFold(r.namespace, word) {
		return true
	}
	// A word without characters of JSON's syntax can only be found within a cell.
	if !strings.ContainsAny(word, `",[]{}:\`) {
		return containsFold(r.cells, word)
	}
	for _, value := range eachCell(r.cells) {
		if containsFold(cellText(value), word) {
			return true
		}
	}
	return false
}

// containsFold reports whether text contains a word in lower case, without regard to case.
func containsFold(text, word string) bool {
	if word == "" {
		return true
	}
	for i := range len(word) {
		if word[i] >= 0x80 {
			return strings.Contains(strings.ToLower(text), word)
		}
	}
	for i := 0; i+len(word) <= len(text); i++ {
		if lower(text[i]) == word[0] && equalFold(text[i:i+len(word)], word) {
			return true
		}
	}
	return false
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

func equalFold(text, word string) bool {
	for i := range len(word) {
		if lower(text[i]) != word[i] {
			return false
		}
	}
	return true
}

// order decides the order of rows.
type order struct {
	column     int // index of a column, or one of the values below
	isNumber   bool
	descending bool
}

const (
	byName = -1 - iota
	byNamespace
	byAge
)

func newOrder(text string, columns []Column) order {
	o := order{column: byName}
	text, o.descending = strings.CutPrefix(strings.ToLower(text), "-")
	switch text {
	case "", "name":
		return o
	case "namespace":
		o.column = byNamespace
		return o
	case "age", "created":
		o.column = byAge
		return o
	}
	for i, c := range columns {
		if strings.ToLower(c.Name) == text {
			o.column, o.isNumber = i, c.Type == "integer" || c.Type == "number"
			return o
		}
	}
	return o
}

// entry is a row of a view with the value by which it is sorted.
type entry struct {
	row    *row
	text   string
	number float64
}

func (o order) entry(r *row) entry {
	e := entry{row: r}
	switch o.column {
	case byName:
	case byNamespace:
		e.text = r.namespace
	case byAge:
		e.number = -float64(r.created)
	default:
		if e.text = r.cell(o.column); o.isNumber {
			e.number, _ = strconv.ParseFloat(e.text, 64) // others are sorted as 0
			e.text = ""
		}
	}
	return e
}

func (o order) compare(a, b entry) int {
	c := cmp.Compare(a.number, b.number)
	if c == 0 {
		c = compareNatural(a.text, b.text)
	}
	if c == 0 {
		c = cmp.Or(compareNatural(a.row.name, b.row.name), cmp.Compare(a.row.name, b.row.name),
			cmp.Compare(a.row.namespace, b.row.namespace), cmp.Compare(a.row.uid, b.row.uid))
	}
	if o.descending {
		return -c
	}
	return c
}

// compareNatural compares texts so that web-9 is before web-10.
func compareNatural(a, b string) int {
	start := 0
	for start < min(len(a), len(b)) && a[start] == b[start] {
		start++
	}
	for start > 0 && isDigit(a[start-1]) { // the difference is within a number
		start--
	}
	for i, j := start, start; ; {
		if i == len(a) || j == len(b) {
			return cmp.Compare(len(a)-i, len(b)-j)
		}
		if isDigit(a[i]) && isDigit(b[j]) {
			first, second := digits(a[i:]), digits(b[j:])
			i, j = i+len(first), j+len(second)
			first, second = strings.TrimLeft(first, "0"), strings.TrimLeft(second, "0")
			if c := cmp.Or(cmp.Compare(len(first), len(second)), strings.Compare(first, second)); c != 0 {
				return c
			}
			continue
		}
		if x, y := lower(a[i]), lower(b[j]); x != y {
			return cmp.Compare(x, y)
		}
		i, j = i+1, j+1
	}
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func digits(text string) string {
	end := 0
	for end < len(text) && isDigit(text[end]) {
		end++
	}
	return text[:end]
}
