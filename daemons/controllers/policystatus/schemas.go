package policystatus

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// openAPIDocuments resolves schemas from the OpenAPI v3 documents of an API server.
type openAPIDocuments struct{ api rest.Interface }

// documentTimeout limits the request for one document.
const documentTimeout = 30 * time.Second

// ResolveSchema implements schemaResolver.
func (d openAPIDocuments) ResolveSchema(kind schema.GroupVersionKind) (*spec.Schema, error) {
	path := "/openapi/v3/apis/" + kind.GroupVersion().String()
	if kind.Group == "" {
		path = "/openapi/v3/api/" + kind.Version
	}
	ctx, cancel := context.WithTimeout(context.Background(), documentTimeout)
	defer cancel()
	text, err := d.api.Get().AbsPath(path).SetHeader("Accept", "application/json").Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w: no OpenAPI document of %s", errSchemaNotFound, kind.GroupVersion())
	}
	if err != nil {
		return nil, fmt.Errorf("get the OpenAPI document of %s: %w", kind.GroupVersion(), err)
	}
	var document struct {
		Components struct {
			Schemas schemas `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("decode the OpenAPI document of %s: %w", kind.GroupVersion(), err)
	}
	return document.Components.Schemas.ofKind(kind)
}

// schemas holds the schemas of a document by name.
type schemas map[string]*spec.Schema

// ofKind returns the schema of a kind, with all references replaced.
func (s schemas) ofKind(kind schema.GroupVersionKind) (*spec.Schema, error) {
	for _, name := range slices.Sorted(maps.Keys(s)) {
		var kinds []schema.GroupVersionKind
		if err := s[name].Extensions.GetObject("x-kubernetes-group-version-kind", &kinds); err != nil {
			return nil, fmt.Errorf("decode the kinds of schema %s: %w", name, err)
		}
		if slices.Contains(kinds, kind) {
			whole, err := s.resolve(*s[name], []string{name})
			return &whole, err
		}
	}
	return nil, fmt.Errorf("%w: %s", errSchemaNotFound, kind)
}

// resolve returns a schema with its references replaced. parents are the names of the schemas that contain it; a
// reference to one of them becomes an object of any shape.
func (s schemas) resolve(part spec.Schema, parents []string) (spec.Schema, error) {
	if name := reference(part); name != "" {
		if slices.Contains(parents, name) {
			return spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}}, nil
		}
		if s[name] == nil {
			return part, fmt.Errorf("the document has no schema %s", name)
		}
		part, parents = *s[name], append(slices.Clip(parents), name)
	}
	properties := make(map[string]spec.Schema, len(part.Properties))
	for name, property := range part.Properties {
		whole, err := s.resolve(property, parents)
		if err != nil {
			return part, err
		}
		properties[name] = whole
	}
	part.Properties = properties
	if more := part.AdditionalProperties; more != nil && more.Schema != nil {
		whole, err := s.resolve(*more.Schema, parents)
		if err != nil {
			return part, err
		}
		part.AdditionalProperties = &spec.SchemaOrBool{Allows: more.Allows, Schema: &whole}
	}
	if part.Items != nil && part.Items.Schema != nil {
		whole, err := s.resolve(*part.Items.Schema, parents)
		if err != nil {
			return part, err
		}
		part.Items = &spec.SchemaOrArray{Schema: &whole}
	}
	return part, nil
}

// reference returns the name of the schema that part refers to, or "". A reference with its own description is wrapped
// in allOf.
func reference(part spec.Schema) string {
	name := part.Ref.String()
	for _, wrapped := range part.AllOf {
		if name == "" {
			name = wrapped.Ref.String()
		}
	}
	return strings.TrimPrefix(name, "#/components/schemas/")
}
