package read

import (
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/request"
)

// Selection describes the objects of a kind that a request selects.
type Selection struct {
	prefix     string // of the keys: the namespace and a slash, or empty for all
	name       string // a single name, from metadata.name=
	labels     labels.Selector
	fields     fields.Selector
	fieldIndex int // 1 + index of the indexed field that the selector fixes; 0 if none
	value      string
	examined   int // how many entries were examined
}

// Select returns what a request selects.
func Select(q *request.Request) (Selection, error) {
	sel := Selection{labels: labels.Everything(), fields: fields.Everything()}
	if q.Namespace != "" {
		sel.prefix = q.Namespace + "/"
	}
	var err error
	if q.LabelSelector != "" {
		if sel.labels, err = labels.Parse(q.LabelSelector); err != nil {
			return sel, apierrors.NewBadRequest(err.Error())
		}
	}
	if q.FieldSelector == "" {
		return sel, nil
	}
	if sel.fields, err = fields.ParseSelector(q.FieldSelector); err != nil {
		return sel, apierrors.NewBadRequest(err.Error())
	}
	selectable := fields.Set{"metadata.name": ""}
	if q.Served.Namespaced {
		selectable["metadata.namespace"] = ""
	}
	if q.Served.Fields != nil {
		for name := range q.Served.Fields(q.Served.New()) {
			selectable[name] = ""
		}
	}
	for _, r := range sel.fields.Requirements() {
		if !selectable.Has(r.Field) {
			return sel, unknownField(q, r.Field)
		}
	}
	if name, ok := sel.fields.RequiresExactMatch("metadata.name"); ok {
		sel.name = name
	}
	if namespace, ok := sel.fields.RequiresExactMatch("metadata.namespace"); ok && q.Namespace == "" &&
		q.Served.Namespaced {
		sel.prefix = namespace + "/"
	}
	for i, name := range q.Served.IndexedFields {
		if value, ok := sel.fields.RequiresExactMatch(name); ok {
			sel.fieldIndex, sel.value = i+1, value
			break
		}
	}
	return sel, nil
}

// unknownField refuses to select by an unsupported field. For a kind without fields of its own, the error lists the
// supported fields.
func unknownField(q *request.Request, label string) error {
	if q.Served.Fields == nil && q.Served.Untyped == nil {
		_, _, err := runtime.DefaultMetaV1FieldSelectorConversion(label, "")
		if err != nil {
			return apierrors.NewBadRequest(err.Error())
		}
	}
	return apierrors.NewBadRequest("field label not supported: " + label)
}

// UsesIndex reports whether the kind has an index of a field that the selector fixes.
func (sel *Selection) UsesIndex() bool { return sel.fieldIndex > 0 }

// matches reports whether an entry is selected.
func (sel *Selection) matches(e *cache.Entry) bool {
	return e != nil && strings.HasPrefix(e.Key, sel.prefix) && sel.selects(e)
}

// selects is like matches, for an entry whose key has the prefix. It reads the key only of selected entries, because
// the key is seldom in the processor's cache.
func (sel *Selection) selects(e *cache.Entry) bool {
	return (sel.labels.Empty() || sel.labels.Matches(e.Labels)) &&
		(sel.fields.Empty() || sel.fields.Matches(e.Fields()))
}

// hasNoSelectors reports whether the request selects only by namespace.
func (sel *Selection) hasNoSelectors() bool { return sel.labels.Empty() && sel.fields.Empty() }

// each calls f for the selected entries of a snapshot whose keys follow after, in order. It stops when f returns false.
func (sel *Selection) each(q *request.Request, snapshot *cache.Snapshot, after string, f func(*cache.Entry) bool) {
	match := func(e *cache.Entry) bool {
		sel.examined++
		return !sel.selects(e) || f(e)
	}
	if sel.fieldIndex > 0 && snapshot.AscendField(q.Served.IndexedFields[sel.fieldIndex-1], sel.value, sel.prefix,
		after, match) {
		return
	}
	snapshot.Ascend(sel.prefix, after, match)
}

// conversionBatch is how many objects are converted at a time before they are selected from.
const conversionBatch = 500

// eachConverted is like each. If the selector uses fields that depend on the version, it converts the entries to the
// version of the request first. Otherwise the entries are in the version in which they are stored.
func (sel *Selection) eachConverted(q *request.Request, snapshot *cache.Snapshot, after string,
	f func(*cache.Entry) bool) error {
	if !sel.dependsOnVersion(q) {
		sel.each(q, snapshot, after, f)
		return nil
	}
	for more := true; more; {
		var some []*cache.Entry
		snapshot.Ascend(sel.prefix, after, func(e *cache.Entry) bool {
			after = e.Key
			sel.examined++
			if sel.labels.Matches(e.Labels) {
				some = append(some, e)
			}
			return len(some) < conversionBatch
		})
		more = len(some) == conversionBatch
		if err := cache.Convert(q.HTTP.Context(), some, q.Served.Kind); err != nil {
			return err
		}
		for _, e := range some {
			if sel.fields.Matches(e.Fields()) && !f(e) {
				return nil
			}
		}
	}
	return nil
}

// dependsOnVersion reports whether the selection depends on the version of the request.
func (sel *Selection) dependsOnVersion(q *request.Request) bool {
	if q.Served.Untyped == nil || len(q.Served.Untyped.Family.Versions) < 2 {
		return false
	}
	for _, r := range sel.fields.Requirements() {
		if r.Field != "metadata.name" && r.Field != "metadata.namespace" {
			return true
		}
	}
	return false
}
