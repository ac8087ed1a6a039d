package managed

import (
	"bytes"
	"compress/gzip"
	"encoding/gob"
	"errors"
	"flag"
	"os"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/applyconfigurations"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/yaml/goyaml.v2"

	"clusterctl/kube/scheme"
)

var updateSchema = flag.Bool("update", false, "write schema.gob.gz")

// The schema equals client-go's for all kinds that are served, and has no others.
func TestSchemaEqualsClientGo(t *testing.T) {
	all := clientGoSchema(t)
	types := map[string]schema.TypeDef{}
	for _, def := range all.Types {
		types[def.Name] = def
	}
	used := map[string]bool{}
	for kind := range scheme.Scheme().AllKnownTypes() {
		name, err := scheme.Scheme().ToOpenAPIDefinitionName(kind)
		if err != nil {
			t.Fatal(err)
		}
		markType(types, used, name)
	}
	served := schema.Schema{
		Types: slices.DeleteFunc(slices.Clone(all.Types), func(def schema.TypeDef) bool { return !used[def.Name] }),
	}
	if *updateSchema {
		registerDefaults()
		var packed bytes.Buffer
		w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(gob.NewEncoder(w).Encode(&served), w.Close()); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("schema.gob.gz", packed.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		schemaFile = packed.Bytes()
	}
	parser, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(&served)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := yaml.Marshal(&parser.Schema); err != nil || !bytes.Equal(got, text) {
		t.Errorf("schema.gob.gz is not client-go's schema (%v): run go test ./daemons/apiserver/managed -update", err)
	}
	for _, name := range []string{"io.k8s.api.core.v1.Pod", "io.k8s.api.apps.v1.Deployment",
		"io.k8s.api.resource.v1.ResourceClaim"} {
		if kind := parser.Type(name); !kind.IsValid() {
			t.Errorf("%s is missing", name)
		}
	}
	if name := "io.k8s.api.apps.v1beta1.Deployment"; slices.Contains(parser.TypeNames(), name) {
		t.Errorf("%s is not served", name)
	}
}

// clientGoSchema returns client-go's schema.
func clientGoSchema(t *testing.T) *schema.Schema {
	t.Helper()
	config := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}}
	of, err := applyconfigurations.NewTypeConverter(scheme.Scheme()).ObjectToTyped(config)
	if err != nil {
		t.Fatal(err)
	}
	return of.Schema()
}

// markType marks a type and those that it refers to.
func markType(types map[string]schema.TypeDef, used map[string]bool, name string) {
	def, ok := types[name]
	if used[name] || !ok {
		return
	}
	used[name] = true
	markAtom(types, used, def.Atom)
}

func markAtom(types map[string]schema.TypeDef, used map[string]bool, atom schema.Atom) {
	ref := func(r schema.TypeRef) {
		if r.NamedType != nil {
			markType(types, used, *r.NamedType)
		}
		markAtom(types, used, r.Inlined)
	}
	if atom.List != nil {
		ref(atom.List.ElementType)
	}
	if atom.Map != nil {
		for _, field := range atom.Map.Fields {
			ref(field.Type)
		}
		ref(atom.Map.ElementType)
	}
}
