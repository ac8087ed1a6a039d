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

// upstreamCode computes answers with the code that Kubernetes publishes: its types' decoder, its schema of server-side
// apply, and its tracking of field owners. It uses no code of our server.
type upstreamCode struct {
	scheme  *runtime.Scheme
	decoder runtime.Decoder
}

func newUpstreamCode(s *runtime.Scheme) *upstreamCode {
	return &upstreamCode{
		scheme: s,
		decoder: serializer.NewSerializerWithOptions(serializer.DefaultMetaFactory, s, s,
			serializer.SerializerOptions{Strict: true}),
	}
}

// decodeError returns the error of the strict decoder for a body. It is empty if the body is accepted.
func (p *upstreamCode) decodeError(k *sampleKind, body []byte) string {
	into, err := p.scheme.New(k.gvk)
	if err != nil {
		panic(fmt.Sprintf("a kind that was found is gone: %v", err))
	}
	if _, _, err = p.decoder.Decode(body, &k.gvk, into); err != nil {
		return err.Error()
	}
	return ""
}

// converter returns the type converter with the schema of a kind's group.
func (p *upstreamCode) converter(k *sampleKind) managedfields.TypeConverter {
	switch k.gvk.Group {
	case "apiextensions.k8s.io":
		return extensionschema.NewTypeConverter(p.scheme)
	case "apiregistration.k8s.io":
		return registrationschema.NewTypeConverter(p.scheme)
	}
	return coreschema.NewTypeConverter(p.scheme)
}

// resetFilters returns filters of the fields that a write to the object does not change.
func resetFilters(k *sampleKind) map[fieldpath.APIVersion]fieldpath.Filter {
	sets := map[fieldpath.APIVersion]*fieldpath.Set{}
	for _, path := range unchangedFields(k) {
		sets[fieldpath.APIVersion(k.Version)] = fieldpath.NewSet(fieldpath.MakePathOrDie(path))
	}
	return fieldpath.NewExcludeFilterSetMap(sets)
}

func (p *upstreamCode) manager(k *sampleKind) *managedfields.FieldManager {
	m, err := managedfields.NewDefaultFieldManager(p.converter(k), runtime.UnsafeObjectConvertor(p.scheme), p.scheme,
		p.scheme, k.gvk, k.gvk.GroupVersion(), "", resetFilters(k))
	if err != nil {
		panic(fmt.Sprintf("a schema has no %s: %v", k, err))
	}
	return m
}

// applyError returns the code and the message with which an applied body is refused. The code is 0 if the body is
// accepted.
func (p *upstreamCode) applyError(k *sampleKind, body []byte) (code int, message string) {
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
		return 500, trimName(err.Error())
	}
	if err := yaml.UnmarshalStrict(body, &map[string]any{}); err != nil {
		return 400, "error strict decoding patch: " + err.Error()
	}
	return 0, ""
}

// trimName returns the part of a message after the object's name and kind. The kind is in parentheses, with a colon or
// a space after it.
func trimName(message string) string {
	if _, rest, ok := strings.Cut(message, "): "); ok {
		return rest
	}
	return message[strings.Index(message, ") ")+2:]
}

func mustEncode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("what came from JSON has none: %v", err))
	}
	return data
}
