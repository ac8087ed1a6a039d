package ownership

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// manyFields is the length, in bytes, from which fields that a client sends are sorted before the library reads them.
const manyFields = 32 << 10

// sortSentFields sorts the fields of the managed fields of an object that a client sent, unless the live object has the
// same. The library takes quadratic time to read fields that are not in order.
func sortSentFields(live, obj runtime.Object) {
	stored, storedErr := meta.Accessor(live)
	sent, sentErr := meta.Accessor(obj)
	if storedErr != nil || sentErr != nil {
		return
	}
	entries := sent.GetManagedFields()
	isCopy := false
	for i, e := range entries {
		isStored := func(s metav1.ManagedFieldsEntry) bool {
			return s.FieldsV1 != nil && bytes.Equal(s.FieldsV1.Raw, e.FieldsV1.Raw)
		}
		if e.FieldsV1 == nil || len(e.FieldsV1.Raw) < manyFields ||
			slices.ContainsFunc(stored.GetManagedFields(), isStored) {
			continue
		}
		if !isCopy {
			entries, isCopy = slices.Clone(entries), true
		}
		entries[i].FieldsV1 = &metav1.FieldsV1{Raw: sortFields(e.FieldsV1.Raw)}
	}
	if isCopy {
		sent.SetManagedFields(entries)
	}
}

// sentField is a field in the format FieldsV1.
type sentField struct {
	name    string
	element fieldpath.PathElement // not set for the field that contains the others, whose name is "."
	fields  []sentField
}

// sortFields returns a set in the format FieldsV1 with its fields in the order of a fieldpath.Set. If the set is not
// valid, neither is the result.
func sortFields(raw []byte) []byte {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	fields, err := readFields(decoder)
	if err != nil || decoder.More() {
		return []byte("invalid")
	}
	return appendFields(nil, fields)
}

var errNoObject = errors.New("a set of fields is not an object")

func readFields(decoder *json.Decoder) ([]sentField, error) {
	if begin, err := decoder.Token(); err != nil || begin != json.Delim('{') {
		return nil, errors.Join(err, errNoObject)
	}
	var fields []sentField
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		f := sentField{}
		f.name, _ = name.(string)
		isIgnored := false
		if f.name != "." {
			f.element, err = fieldpath.DeserializePathElement(f.name)
			isIgnored = errors.Is(err, fieldpath.ErrUnknownPathElementType)
			if err != nil && !isIgnored {
				return nil, err
			}
		}
		if isIgnored || f.name == "." {
			if err := decoder.Decode(new(json.RawMessage)); err != nil {
				return nil, err
			}
		} else if f.fields, err = readFields(decoder); err != nil {
			return nil, err
		}
		if !isIgnored {
			fields = append(fields, f)
		}
	}
	if _, err := decoder.Token(); err != nil {
		return nil, err
	}
	slices.SortStableFunc(fields, compareSentFields)
	return fields, nil
}

func compareSentFields(a, b sentField) int {
	switch {
	case a.name == "." && b.name == ".":
		return 0
	case a.name == ".":
		return -1
	case b.name == ".":
		return 1
	}
	return a.element.Compare(b.element)
}

func appendFields(out []byte, fields []sentField) []byte {
	out = append(out, '{')
	for i, f := range fields {
		if i > 0 {
			out = append(out, ',')
		}
		name, err := json.Marshal(f.name)
		if err != nil {
			continue // texts can always be encoded
		}
		out = appendFields(append(append(out, name...), ':'), f.fields)
	}
	return append(out, '}')
}
