package wire

import (
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"clusterctl/daemons/apiserver/cache"
)

var nameColumn = metav1.TableColumnDefinition{
	Name: "Name", Type: "string", Format: "name",
	Description: "Name is unique within a namespace, or in the cluster for kinds without one.",
}

var ageColumn = metav1.TableColumnDefinition{
	Name:        "Age",
	Type:        "string",
	Description: "Time since the object was created.",
}

func tableColumns(s Served) []metav1.TableColumnDefinition {
	list := []metav1.TableColumnDefinition{nameColumn}
	switch {
	case s.Row == nil:
		return append(list, ageColumn)
	case s.RowHasName:
		return s.Columns
	}
	return append(list, s.Columns...)
}

// appendTableHead appends a table up to the bracket that opens its rows.
func (m Media) appendTableHead(to []byte, s Served, revision, next string, remaining *int64, headings bool) []byte {
	list := metav1.ListMeta{ResourceVersion: revision, Continue: next, RemainingItemCount: remaining}
	to = append(to, `{"kind":"Table","apiVersion":"meta.k8s.io/`...)
	to = append(to, m.Version...)
	to = append(to, `","metadata":`...)
	to = appendValue(to, list)
	to = append(to, `,"columnDefinitions":`...)
	if headings {
		to = appendValue(to, tableColumns(s))
	} else {
		to = append(to, "null"...)
	}
	return append(to, `,"rows":[`...)
}

// appendRow appends an object's row. Its cells include ages, so it is made each time.
func appendRow(to []byte, m Media, s Served, e *cache.Entry, rows metav1.IncludeObjectPolicy) ([]byte, error) {
	obj, err := e.Object()
	if err != nil {
		return nil, err
	}
	cells := []any{e.Name}
	if s.Row != nil && s.RowHasName {
		cells = s.Row(obj)
	} else if s.Row != nil {
		cells = append(cells, s.Row(obj)...)
	} else if acc, err := meta.Accessor(obj); err == nil {
		cells = append(cells, duration.HumanDuration(time.Since(acc.GetCreationTimestamp().Time)))
	}
	to = append(to, `{"cells":`...)
	to = appendValue(to, cells)
	switch rows {
	case metav1.IncludeNone:
	case metav1.IncludeObject:
		to = append(to, `,"object":`...)
		to, err = s.AppendJSON(to, e)
	default:
		to = append(to, `,"object":`...)
		to = m.appendPartial(to, e)
	}
	return append(to, '}'), err
}

// appendValue appends the JSON of a value that can always be encoded.
func appendValue(to []byte, v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		return append(to, "null"...)
	}
	return append(to, data...)
}
