package table

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// accept asks for tables, and for objects of servers that have none.
const accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

// metadata is what the table reads of an object.
type metadata struct {
	UID             string            `json:"uid"`
	Namespace       string            `json:"namespace"`
	Name            string            `json:"name"`
	ResourceVersion string            `json:"resourceVersion"`
	Created         *time.Time        `json:"creationTimestamp"`
	Labels          map[string]string `json:"labels"`
}

func (m *metadata) row(cells string) *row {
	var created time.Time
	if m.Created != nil {
		created = *m.Created
	}
	return newRow(m.UID, m.Namespace, m.Name, cells, m.Labels, created)
}

type partialObject struct {
	Metadata metadata `json:"metadata"`
}

// tableRow is a row of a Table.
type tableRow struct {
	Cells  json.RawMessage `json:"cells"`
	Object partialObject   `json:"object"`
}

func (r *tableRow) row() *row {
	if len(r.Cells) == 0 || r.Cells[0] != '[' {
		return r.Object.Metadata.plainRow()
	}
	return r.Object.Metadata.row(string(r.Cells))
}

// plainColumns are the columns of objects of servers that have no tables.
func plainColumns() []Column {
	return []Column{{Name: "Name", Type: "string"}, {Name: "Age", Type: "string"}}
}

// plainRow returns a row with the columns of plainColumns.
func (m *metadata) plainRow() *row {
	text, _ := json.Marshal([]string{m.Name, ""}) // strings can always be encoded
	return m.row(string(text))
}

// page is one answer to a list request, whose rows were passed on.
type page struct {
	columns         []Column
	resourceVersion string
	next            string // continue token
}

// readPage decodes a list of any size row by row.
func readPage(from io.Reader, add func(*row) error) (page, error) {
	var p page
	d := json.NewDecoder(from)
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return p, fmt.Errorf("decode a list: it is not an object: %w", err)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return p, fmt.Errorf("decode a list: %w", err)
		}
		switch key {
		case "metadata":
			var m metav1.ListMeta
			err = d.Decode(&m)
			p.resourceVersion, p.next = m.ResourceVersion, m.Continue
		case "columnDefinitions":
			err = d.Decode(&p.columns)
		case "rows":
			err = eachValue(d, func(r *tableRow) error { return add(r.row()) })
		case "items":
			p.columns = plainColumns()
			err = eachValue(d, func(o *partialObject) error { return add(o.Metadata.plainRow()) })
		default:
			var ignored json.RawMessage
			err = d.Decode(&ignored)
		}
		if err != nil {
			return p, fmt.Errorf("decode a list: %w", err)
		}
	}
	if _, err := d.Token(); err != nil { // a list that ends early is incomplete
		return p, fmt.Errorf("decode a list: %w", err)
	}
	return p, nil
}

// eachValue decodes the values of an array one by one. The array may be null.
func eachValue[T any](d *json.Decoder, f func(*T) error) error {
	t, err := d.Token()
	if err != nil || t == nil {
		return err
	}
	if t != json.Delim('[') {
		return fmt.Errorf("%v is not an array", t)
	}
	for d.More() {
		var value T
		if err := d.Decode(&value); err != nil {
			return err
		}
		if err := f(&value); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}

// watchEvent is an event of a watch.
type watchEvent struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// eventObject is a Table, or an object of a server that has no tables.
type eventObject struct {
	Kind     string     `json:"kind"`
	Metadata metadata   `json:"metadata"`
	Rows     []tableRow `json:"rows"`
}

// rows returns the rows of the event, and the revision after it.
func (e *watchEvent) rows() (list []*row, revision string, err error) {
	var object eventObject
	if err := json.Unmarshal(e.Object, &object); err != nil {
		return nil, "", fmt.Errorf("decode an event: %w", err)
	}
	revision = object.Metadata.ResourceVersion
	if object.Kind != "Table" {
		if e.Type == "BOOKMARK" {
			return nil, revision, nil
		}
		return []*row{object.Metadata.plainRow()}, revision, nil
	}
	for i := range object.Rows {
		one := &object.Rows[i]
		if v := one.Object.Metadata.ResourceVersion; v != "" {
			revision = v
		}
		if one.Object.Metadata.Name != "" {
			list = append(list, one.row())
		}
	}
	return list, revision, nil
}

// err returns the error of an event of type ERROR.
func (e *watchEvent) err() error {
	var status metav1.Status
	if err := json.Unmarshal(e.Object, &status); err != nil {
		return fmt.Errorf("decode the error of a watch: %w", err)
	}
	return &apierrors.StatusError{ErrStatus: status}
}
