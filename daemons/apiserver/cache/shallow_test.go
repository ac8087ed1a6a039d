package cache

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"clusterctl/daemons/kinds"
)

// fillFields sets all fields of a value, each string to its path.
func fillFields(v reflect.Value, path string, depth int) {
	if depth > 12 || v.CanAddr() && v.Addr().Type().Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return // a type that decodes itself has its own form
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillFields(v.Elem(), path, depth+1)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				fillFields(v.Field(i), path+"."+f.Name, depth+1)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			fillFields(v.Index(0), path+"[0]", depth+1)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fillFields(key, path+"key", depth+1)
		fillFields(value, path+`"value\`, depth+1)
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString(path)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64, reflect.Int:
		v.SetInt(7)
	}
}

// Reading an object shallowly finds the same values for selectors as decoding it.
// Proves S12.
func TestShallowReadEqualsDecoding(t *testing.T) {
	for _, k := range kinds.All() {
		if k.Virtual || pinnedResources[k.Resource] {
			continue
		}
		for _, full := range []bool{false, true} {
			obj := k.New()
			if full {
				fillFields(reflect.ValueOf(obj).Elem(), "", 0)
			}
			m, err := meta.Accessor(obj)
			if err != nil {
				t.Fatal(err)
			}
			m.SetName("a")
			data, err := Encode(k, obj)
			if err != nil {
				t.Fatal(err)
			}
			over, err := NewEntry(k, "a", data, 5, nil)
			if err != nil {
				t.Fatal(err)
			}
			if over.forms.decoded.Load() != nil {
				t.Errorf("%s, full %v: it was decoded", k.GR(), full)
			}
			decoded, _, err := decode(k, data)
			if err != nil {
				t.Fatal(err)
			}
			deep, err := NewEntry(k, "a", data, 5, decoded)
			if err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(over.Labels, deep.Labels) || !slices.Equal(over.values, deep.values) ||
				over.versionOffset != deep.versionOffset ||
				over.kind != deep.kind {
				t.Errorf("%s, full %v: looked over %v %v, decoded %v %v", k.GR(), full, over.Labels, over.values,
					deep.Labels, deep.values)
			}
			a, errA := over.Object()
			b, errB := deep.Object()
			if errA != nil || errB != nil || !reflect.DeepEqual(a, b) {
				t.Errorf("%s, full %v: the objects differ", k.GR(), full)
			}
		}
	}
}

func TestForeignEncodingsAreDecoded(t *testing.T) {
	for _, text := range []string{
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x","resourceVersion":"3"}}`,
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x"}} `,
		`{"kind":"Pod", "apiVersion":"v1","metadata":{"name":"x"}}`,
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name": "x", "labels": {"a": "b"}}}`,
	} {
		e, err := NewEntry(podKind(), "b/x", []byte(text), 7, nil)
		if err != nil || e.forms.decoded.Load() == nil || strings.Contains(text, "labels") && e.Labels["a"] != "b" {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x"}`,
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x"},"spec":{"nodeName":4}}`,
		`{"kind":"Other","apiVersion":"v1","metadata":{"name":"x"}}`,
		`{"kind":"Pod","apiVersion":"v1beta1","metadata":{"name":"x"}}`,
		`{"metadata":{"name":"x"}}`,
	} {
		if _, err := NewEntry(podKind(), "b/x", []byte(text), 7, nil); err == nil {
			t.Errorf("%s passed", text)
		}
	}
}

func BenchmarkNewEntry(b *testing.B) {
	k := podKind()
	e := mustEntry(b, k, "a/x", "n1", 1)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := NewEntry(k, "a/x", e.JSON(), 2, nil); err != nil {
			b.Fatal(err)
		}
	}
}
