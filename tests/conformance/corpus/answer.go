package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	extensionschema "k8s.io/apiextensions-apiserver/pkg/client/applyconfiguration"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/managedfields"
	coreschema "k8s.io/client-go/applyconfigurations"
	registrationschema "k8s.io/kube-aggregator/pkg/client/applyconfiguration"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/yaml"
)

// published answers by what Kubernetes publishes of itself: its types' decoder, its schema of server-side apply, and
// the account of who owns which fields. None of it is our server's.
type published struct {
	scheme  *runtime.Scheme
	decoder runtime.Decoder
}

func newPublished(s *runtime.Scheme) *published {
	return &published{
		scheme: s,
		decoder: serializer.NewSerializerWithOptions(
			serializer.DefaultMetaFactory,
			s,
			s,
			serializer.SerializerOptions{Strict: true},
		),
	}
}

// decoded returns why a body is refused by who decodes strictly; empty when it is taken.
func (p *published) decoded(k *kind, body []byte) string {
	into, err := p.scheme.New(k.gvk)
	if err != nil {
		panic(fmt.Sprintf("a kind that was found is gone: %v", err))
	}
	if _, _, err = p.decoder.Decode(body, &k.gvk, into); err != nil {
		return err.Error()
	}
	return ""
}

// converter is the schema of a kind's group.
func (p *published) converter(k *kind) managedfields.TypeConverter {
	switch k.gvk.Group {
	case "apiextensions.k8s.io":
		return extensionschema.NewTypeConverter(p.scheme)
	case "apiregistration.k8s.io":
		return registrationschema.NewTypeConverter(p.scheme)
	}
	return coreschema.NewTypeConverter(p.scheme)
}

// resetting are filters of the fields that a write to the object does not change.
func resetting(k *kind) map[fieldpath.APIVersion]fieldpath.Filter {
	sets := map[fieldpath.APIVersion]*fieldpath.Set{}
	for _, path := range resets(k) {
		sets[fieldpath.APIVersion(k.Version)] = fieldpath.NewSet(fieldpath.MakePathOrDie(path))
	}
	return fieldpath.NewExcludeFilterSetMap(sets)
}

func (p *published) manager(k *kind) *managedfields.FieldManager {
	m, err := managedfields.NewDefaultFieldManager(
		p.converter(k),
		runtime.UnsafeObjectConvertor(p.scheme),
		p.scheme,
		p.scheme,
		k.gvk,
		k.gvk.GroupVersion(),
		"",
		resetting(k),
	)
	if err != nil {
		panic(fmt.Sprintf("a schema has no %s: %v", k, err))
	}
	return m
}

// applied returns with which code and why an applied body is refused; 0 when it is taken.
func (p *published) applied(k *kind, body []byte) (code int, message string) {
	o := map[string]any{}
	if err := yaml.Unmarshal(body, &o); err != nil {
		return 400, "error decoding patch: " + err.Error()
	}
	live, err := p.scheme.New(k.gvk)
	if err != nil {
		panic(fmt.Sprintf("a kind that was found is gone: %v", err))
	}
	if _, err := p.manager(k).Apply(live, &unstructured.Unstructured{Object: o}, "corpus", false); err != nil {
		var status apierrors.APIStatus
		if errors.As(err, &status) {
			return int(status.Status().Code), err.Error()
		}
		return 500, afterName(err.Error())
	}
	if err := yaml.UnmarshalStrict(body, &map[string]any{}); err != nil {
		return 400, "error strict decoding patch: " + err.Error()
	}
	return 0, ""
}

// afterName is what a message says after the object's name and kind, which it has in parentheses before a colon or a
// space.
func afterName(message string) string {
	if _, rest, ok := strings.Cut(message, "): "); ok {
		return rest
	}
	return message[strings.Index(message, ") ")+2:]
}

func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("what came from JSON has none: %v", err))
	}
	return data
}
