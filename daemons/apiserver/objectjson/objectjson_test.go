package objectjson_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/randfill"

	"clusterctl/daemons/apiserver/objectjson"
	"clusterctl/daemons/kinds"
)

// unescaper replaces the escapes of <, > and &. It matches escaped backslashes first, so that none of them is taken for
// the beginning of an escape.
var unescaper = strings.NewReplacer(`\\`, `\\`, `\u003c`, "<", `\u003C`, "<", `\u003e`, ">", `\u003E`, ">", `\u0026`, "&")

// compareEncoding checks the encoding of obj against encoding/json's.
func compareEncoding(t *testing.T, obj any) {
	t.Helper()
	text, wantErr := json.Marshal(obj)
	want := []byte(unescaper.Replace(string(text)))
	got, err := objectjson.Append(nil, obj)
	if (err != nil) != (wantErr != nil) {
		t.Fatalf("%T: got the error %v, want %v", obj, err, wantErr)
	}
	if err == nil && !bytes.Equal(got, want) {
		t.Fatalf("%T is\n%s\nwant\n%s", obj, got, want)
	}
}

// newFiller returns a filler that sets objects from the bytes, including types that encode themselves.
func newFiller(data []byte) *randfill.Filler {
	return randfill.NewFromGoFuzz(data).NilChance(.3).NumElements(0, 3).MaxDepth(12).Funcs(
		func(t *metav1.Time, c randfill.Continue) { t.Time = time.Unix(int64(c.Int31()), 0) },
		func(t *metav1.MicroTime, c randfill.Continue) { t.Time = time.Unix(int64(c.Int31()), 123456000) },
		func(f *metav1.FieldsV1, c randfill.Continue) {
			f.Raw = []byte([]string{`{"f:data":{".":{}}}`, `{ "f:a<b>" : {} }`, `{`, ``}[c.Intn(4)])
		},
		func(r *runtime.RawExtension, c randfill.Continue) {
			r.Raw, r.Object = []byte([]string{`{"a":1}`, `{ "a" : "<&>" }`, `[`, ``}[c.Intn(4)]), nil
		},
	)
}

func TestEveryKindEncodesLikeEncodingJSON(t *testing.T) {
	for _, k := range kinds.All() {
		compareEncoding(t, k.New())
		for seed := range int64(30) {
			obj := k.New()
			randfill.NewWithSeed(seed).NilChance(.3).NumElements(0, 3).MaxDepth(12).Funcs(
				func(t *metav1.Time, c randfill.Continue) { t.Time = time.Unix(int64(c.Int31()), 0) },
				func(t *metav1.MicroTime, c randfill.Continue) { t.Time = time.Unix(int64(c.Int31()), 123456000) },
				func(f *metav1.FieldsV1, c randfill.Continue) {
					f.Raw = []byte(
						[]string{`{ "f:a<b>" : {} }`, `{"f:a b":{}}`, `{"f:a":{".":{}}}`, `{"f:a\"b":{}}`}[c.Intn(4)],
					)
				},
				func(r *runtime.RawExtension, c randfill.Continue) { r.Raw, r.Object = []byte(`{"a":1}`), nil },
			).Fill(obj)
			compareEncoding(t, obj)
		}
	}
}

type unusualTypes struct {
	metav1.TypeMeta `json:",inline"`

	Text    string             `json:"text<"`
	Untold  int8               // without a name
	Never   string             `json:"-"`
	Quoted  int                `json:"quoted,string"`
	Real    float64            `json:"real,omitempty"`
	Any     any                `json:"any,omitempty"`
	Array   [2]bool            `json:"array,omitempty"`
	None    [0]bool            `json:"none,omitempty"`
	Numbers map[int]string     `json:"numbers,omitempty"`
	Zero    struct{ A string } `json:"zero,omitzero"`
	When    *time.Time         `json:"when,omitzero"`
	hidden  string
}

type Inner struct {
	A string `json:"name"`
}

type duplicateNames struct {
	Inner
	A string `json:"name"`
}

type recursiveList struct {
	Self  *recursiveList            `json:"self,omitempty"`
	Items []recursiveList           `json:"items"`
	Named map[string]*recursiveList `json:"named,omitempty"`
	Small []int16                   `json:"small,omitempty"`
	Raw   json.RawMessage           `json:"raw,omitempty"`
}

func TestUnusualTypesEncodeLikeEncodingJSON(t *testing.T) {
	now := time.Now()
	for _, obj := range []any{
		&unusualTypes{}, &unusualTypes{Text: "\u2028\u2029\b\f\n\r\t\x01\x1f日本<&>\x00\xff\"\\\u007fé", Untold: -3,
			Never: "n", Quoted: 7,
			Real: 1e30, Any: map[string]any{"a": 1}, Array: [2]bool{true},
			Numbers: map[int]string{2: "b", 1: "a"}, When: &now, hidden: "h"},
		&duplicateNames{Inner{"a"}, "b"}, &recursiveList{},
		&recursiveList{Self: &recursiveList{Items: []recursiveList{}},
			Items: []recursiveList{{}, {Small: []int16{-1, 2}}},
			Named: map[string]*recursiveList{"b": nil, "a\n": {}}, Raw: json.RawMessage("1")},
		&recursiveList{Raw: json.RawMessage(`["<b>&amp;", "\u003c\u003C\\u003c\\\u003e\u0026\u0001\u2028\u00e9\u00"]`)}, &recursiveList{Raw: json.RawMessage("[\"\u2028\u2029<\",1]")},
		&recursiveList{Raw: json.RawMessage("{")}, unusualTypes{}, (*recursiveList)(nil), nil, map[string]int{"a": 1},
		new(int),
	} {
		compareEncoding(t, obj)
	}
}

// FuzzAppend encodes arbitrary objects of any kind.
func FuzzAppend(f *testing.F) {
	all := kinds.All()
	f.Add(uint8(0), []byte("0123456789"))
	f.Fuzz(func(t *testing.T, kind uint8, data []byte) {
		obj := all[int(kind)%len(all)].New()
		newFiller(data).Fill(obj)
		compareEncoding(t, obj)
	})
}

// FuzzMarshal encodes arbitrary strings and arbitrary JSON.
func FuzzMarshal(f *testing.F) {
	f.Add(`\u003c`, []byte(`"\\u003c\u003c<"`))
	f.Fuzz(func(t *testing.T, text string, raw []byte) {
		compareEncoding(t, map[string]any{"text": text, "raw": json.RawMessage(raw)})
	})
}

func TestMarkupIsNotEscaped(t *testing.T) {
	text := strings.Repeat("<&>", 1000)
	for _, obj := range []any{
		&metav1.ObjectMeta{Annotations: map[string]string{"a": text}}, &runtime.RawExtension{Raw: []byte(`"` + text + `"`)}, map[string]any{"a": text},
	} {
		got, err := objectjson.Append(nil, obj)
		if err != nil || len(got) > len(text)+60 {
			t.Errorf("%T takes %d bytes, %v", obj, len(got), err)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, k := range kinds.All() {
		if k.Resource != "configmaps" && k.Resource != "pods" {
			continue
		}
		obj := k.New()
		randfill.NewWithSeed(7).NilChance(.5).NumElements(1, 2).MaxDepth(9).Funcs(
			func(f *metav1.FieldsV1, c randfill.Continue) { f.Raw = []byte(`{"f:data":{}}`) },
			func(s *string, c randfill.Continue) { *s = "some-text" },
		).Fill(obj)
		var text []byte
		for name, encode := range map[string]func() ([]byte, error){
			"own": func() (_ []byte, err error) {
				text, err = objectjson.Append(text[:0], obj)
				return text, err
			},
			"standard": func() ([]byte, error) { return json.Marshal(obj) },
		} {
			b.Run(k.Resource+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if text, err := encode(); err != nil || len(text) == 0 {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
