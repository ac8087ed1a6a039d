package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/yaml"
)

// sampleKind is a served kind with a valid sample of it.
type sampleKind struct {
	Version      string         `json:"version"`
	Kind         string         `json:"kind"`
	Namespaced   bool           `json:"namespaced"`
	Verbs        []string       `json:"verbs"`
	IsAnswerOnly bool           `json:"answered"`
	Name         string         `json:"name"`
	Object       map[string]any `json:"object"`
	Change       struct {
		Path  string `json:"path"`
		Value any    `json:"value"`
	} `json:"change"`

	gvk    schema.GroupVersionKind
	goType reflect.Type
	fields []*schemaField
}

func (k *sampleKind) String() string { return k.Version + "/" + k.Kind }

func (k *sampleKind) hasVerb(verb string) bool {
	return len(k.Verbs) == 0 || slices.Contains(k.Verbs, verb)
}

// reviewObjects are the objects to send for kinds that are answered and not stored, whose samples are empty.
var reviewObjects = map[string]map[string]any{
	"TokenReview": {"spec": map[string]any{"token": "t"}},
	"SubjectAccessReview": {
		"spec": map[string]any{"user": "u", "nonResourceAttributes": map[string]any{"path": "/", "verb": "get"}},
	},
	"SelfSubjectAccessReview": {
		"spec": map[string]any{"nonResourceAttributes": map[string]any{"path": "/", "verb": "get"}},
	},
	"LocalSubjectAccessReview": {
		"spec": map[string]any{
			"user":               "u",
			"resourceAttributes": map[string]any{"namespace": "$NAMESPACE", "verb": "get", "resource": "pods"},
		},
	},
	"SelfSubjectRulesReview": {"spec": map[string]any{"namespace": "$NAMESPACE"}},
	"Binding":                {"target": map[string]any{"kind": "Node", "name": "n"}},
	"SelfSubjectReview":      {},
}

func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, apiextensions.AddToScheme,
		apiregistration.AddToScheme} {
		if err := add(s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// readKinds reads the samples of a folder.
func readKinds(folder string, s *runtime.Scheme, d *docComments) ([]*sampleKind, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no samples in %s: %w", folder, err)
	}
	var all []*sampleKind
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var some []*sampleKind
		if err := yaml.Unmarshal(data, &some); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, some...)
	}
	var kinds []*sampleKind
	for _, k := range all {
		if !k.hasVerb("create") {
			continue // objects of the kind cannot be created
		}
		gv, err := schema.ParseGroupVersion(k.Version)
		if err != nil {
			return nil, err
		}
		k.gvk = gv.WithKind(k.Kind)
		typed, err := s.New(k.gvk)
		if err != nil {
			return nil, err
		}
		k.goType = reflect.TypeOf(typed).Elem()
		if k.Object == nil {
			k.Object = reviewObjects[k.Kind]
		}
		k.fields = d.fieldsOf(k.goType, k.withMetadata())
		kinds = append(kinds, k)
	}
	slices.SortFunc(kinds, func(a, b *sampleKind) int { return strings.Compare(a.String(), b.String()) })
	return kinds, nil
}

// withMetadata returns the sample with its metadata. Values that only a running test knows are replaced with values of
// the same form.
func (k *sampleKind) withMetadata() map[string]any {
	data, err := json.Marshal(k.Object)
	if err != nil {
		panic(fmt.Sprintf("what came from YAML has no JSON: %v", err))
	}
	text := strings.NewReplacer("$REQUEST", "AAAA", "$STUB", "AAAA", "$AUTHORITY", "AAAA", "$LEAF", "AAAA",
		"$NAMESPACE", "ns", "$GROUP", "example.com").
		Replace(string(data))
	o := map[string]any{}
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(fmt.Sprintf("what has JSON cannot be read from it: %v", err))
	}
	o["apiVersion"], o["kind"] = k.Version, k.Kind
	meta, _ := o["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
	}
	meta["name"] = "x"
	if k.Namespaced {
		meta["namespace"] = "ns"
	}
	o["metadata"] = meta
	return o
}
