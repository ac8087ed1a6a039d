package table

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unique"
)

// Column describes a column of a table.
type Column struct {
	Name     string `json:"name"`
	Type     string `json:"type"`
	Priority int32  `json:"priority"` // 0 is always shown
}

// row is one object. It does not change; a change of the object replaces it.
type row struct {
	uid       string
	namespace string
	name      string
	labels    string // KEY=VALUE of each label, each followed by a zero byte
	cells     string // the cells as the JSON text of an array
	created   int64  // seconds since 1970, or 0
}

// maxCells is the size up to which the cells of a row are stored. Of a longer row only the name is shown.
const maxCells = 16 << 10

// newRow returns a row that takes little memory: one allocation has all texts of its own, and rows share the others.
func newRow(uid, namespace, name, cells string, labels map[string]string, created time.Time) *row {
	if len(cells) > maxCells {
		text, _ := json.Marshal([]string{name}) // a string can always be encoded
		cells = string(text)
	}
	// Go's encoder escapes characters of HTML, such as those of <none>.
	if strings.Contains(cells, `\u00`) && !strings.Contains(cells, `\\`) {
		cells = strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(cells)
	}
	own := uid + name + cells
	r := &row{uid: own[:len(uid)], name: own[len(uid):][:len(name)], cells: own[len(uid)+len(name):],
		namespace: shared(namespace), labels: shared(labelText(labels))}
	if !created.IsZero() {
		r.created = created.Unix()
	}
	return r
}

// shared returns a text that all equal texts share.
func shared(text string) string {
	if text == "" {
		return ""
	}
	return unique.Make(strings.Clone(text)).Value()
}

func labelText(labels map[string]string) string {
	if len(labels) == 0 {
		return ""
	}
	lines := make([]string, 0, len(labels))
	for key, value := range labels {
		lines = append(lines, key+"="+value+"\x00")
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// key identifies the object among those of its resource. Objects that are not stored have no UID.
func (r *row) key() string {
	if r.uid != "" {
		return r.uid
	}
	return r.namespace + "/" + r.name
}

func (r *row) equals(other *row) bool { return *r == *other }

// hasLabel reports whether the object has a label. KEY means any value, and KEY=VALUE one value.
func (r *row) hasLabel(want string) bool {
	for rest := r.labels; rest != ""; {
		var line string
		line, rest, _ = strings.Cut(rest, "\x00")
		if key, _, _ := strings.Cut(line, "="); line == want || key == want {
			return true
		}
	}
	return false
}

// cell returns the text of a cell, or "" if there is none.
func (r *row) cell(index int) string {
	for i, value := range eachCell(r.cells) {
		if i == index {
			return cellText(value)
		}
	}
	return ""
}

// cellText returns the text of a JSON value: that of a string without quotation marks, and of others as it is.
func cellText(value string) string {
	switch {
	case value == "null":
		return ""
	case len(value) < 2 || value[0] != '"':
		return value
	case !strings.Contains(value, `\`):
		return value[1 : len(value)-1]
	}
	var text string
	if err := json.Unmarshal([]byte(value), &text); err != nil {
		return value
	}
	return text
}

// eachCell returns the values of a valid JSON array.
func eachCell(array string) func(yield func(int, string) bool) {
	return func(yield func(int, string) bool) {
		index, start, depth, isString := 0, 1, 0, false
		for i := 0; i < len(array); i++ {
			c := array[i]
			switch {
			case isString && c == '\\':
				i++
			case c == '"':
				isString = !isString
			case isString:
			case c == '[' || c == '{':
				depth++
			case c == ',' && depth == 1:
				if !yield(index, strings.TrimSpace(array[start:i])) {
					return
				}
				index, start = index+1, i+1
			case c == ']' || c == '}':
				depth--
				if value := strings.TrimSpace(array[start:i]); depth == 0 && (value != "" || index > 0) {
					yield(index, value)
				}
			}
		}
	}
}
