package openapi

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"sigs.k8s.io/yaml"

	"clusterctl/daemons/kinds"
)

// TestProtobufEqualsGnostic compares the message with that of the library which defines it.
func TestProtobufEqualsGnostic(t *testing.T) {
	everything, err := os.ReadFile("testdata/everything.json")
	if err != nil {
		t.Fatal(err)
	}
	served := fetch(t, New(kinds.All()), "/openapi/v2", "application/json").Body.Bytes()
	for name, document := range map[string][]byte{"every member": everything, "the document that is served": served} {
		document := sortedDocument(t, document)
		want, err := openapi_v2.ParseDocument(document)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		encoded, err := encodeProtobuf(document)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := &openapi_v2.Document{}
		if err := proto.Unmarshal(encoded, got); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		compareMessages(t, name, want.ProtoReflect(), got.ProtoReflect())
	}
}

// sortedDocument returns a document with its members sorted by name. The library keeps their order.
func sortedDocument(t *testing.T, document []byte) []byte {
	t.Helper()
	var v any
	if err := json.Unmarshal(document, &v); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// compareMessages reports where messages differ. Values in YAML are compared after decoding.
func compareMessages(t *testing.T, at string, want, got protoreflect.Message) {
	t.Helper()
	if text, ok := want.Interface().(*openapi_v2.Any); ok {
		var a, b any
		if err := yaml.Unmarshal([]byte(text.Yaml), &a); err != nil {
			t.Fatalf("%s: %v", at, err)
		}
		if err := yaml.Unmarshal([]byte(got.Interface().(*openapi_v2.Any).Yaml), &b); err != nil {
			t.Fatalf("%s: %v", at, err)
		}
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%s: %v, want %v", at, b, a)
		}
		return
	}
	fields := want.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		below := at + "." + string(field.Name())
		a, b := want.Get(field), got.Get(field)
		switch {
		case field.IsList():
			if a.List().Len() != b.List().Len() {
				t.Errorf("%s: %d values, want %d", below, b.List().Len(), a.List().Len())
				continue
			}
			for i := range a.List().Len() {
				if field.Message() != nil {
					compareMessages(t, below, a.List().Get(i).Message(), b.List().Get(i).Message())
				} else if !a.List().Get(i).Equal(b.List().Get(i)) {
					t.Errorf("%s: %v, want %v", below, b.List().Get(i), a.List().Get(i))
				}
			}
		case field.Message() != nil:
			if want.Has(field) != got.Has(field) {
				t.Errorf("%s: is set: %v, want %v", below, got.Has(field), want.Has(field))
			} else if want.Has(field) {
				compareMessages(t, below, a.Message(), b.Message())
			}
		case !a.Equal(b):
			t.Errorf("%s: %v, want %v", below, b, a)
		}
	}
}
