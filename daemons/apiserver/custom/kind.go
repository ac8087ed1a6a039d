// Package custom converts CustomResourceDefinitions to kinds. It decides which names a definition may have. From its
// schemas it makes the functions that decode, validate, print and describe objects. The API server serves and stores
// the objects.
package custom

import (
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiversion "k8s.io/apimachinery/pkg/version"

	"clusterctl/daemons/kinds"
)

// NewKind returns the kind that a definition with accepted names declares, in the stored version. The other versions
// are in its family. call calls the conversion webhook.
func NewKind(d *apiextensionsv1.CustomResourceDefinition, call Caller) (*kinds.Kind, error) {
	f := &kinds.Family{}
	for i := range d.Spec.Versions {
		v, err := newDefinitionVersion(d, &d.Spec.Versions[i])
		if err != nil {
			return nil, fmt.Errorf("version %s of %s: %w", d.Spec.Versions[i].Name, d.Name, err)
		}
		k := v.newKind(d, f)
		f.Versions = append(f.Versions, k)
		if v.spec.Storage {
			f.Stored = k
		}
		if v.spec.Served {
			f.Served = append(f.Served, k)
		}
	}
	if f.Stored == nil {
		return nil, fmt.Errorf("no version of %s is stored", d.Name)
	}
	// The names of versions express their stability and age.
	slices.SortFunc(f.Served, func(a, b *kinds.Kind) int {
		return apiversion.CompareKubeAwareVersionStrings(b.GVK.Version, a.GVK.Version)
	})
	if c := d.Spec.Conversion; c != nil && c.Strategy == apiextensionsv1.WebhookConverter {
		w, err := newConverter(d, call)
		if err != nil {
			return nil, fmt.Errorf("the conversion of %s: %w", d.Name, err)
		}
		f.CallWebhook = w.convert
	}
	return f.Stored, nil
}

// newKind returns one version of a definition as a kind.
func (v *definitionVersion) newKind(d *apiextensionsv1.CustomResourceDefinition, f *kinds.Family) *kinds.Kind {
	names := d.Status.AcceptedNames
	columns, row := printedColumns(v.spec.AdditionalPrinterColumns)
	k := &kinds.Kind{
		GVK: v.gvk, Resource: names.Plural, Singular: names.Singular, ConditionalUpdate: true,
		ShortNames: names.ShortNames, Categories: names.Categories,
		Namespaced: d.Spec.Scope == apiextensionsv1.NamespaceScoped,
		StorageKey: d.Spec.Group + "/" + names.Plural,
		New:        newEmpty(v.gvk), NewList: newEmpty(v.gvk.GroupVersion().WithKind(names.ListKind)),
		HasGeneration:  true,
		Deprecated:     deprecation(d, v.spec),
		Default:        onUnstructured(v.setDefaults),
		Validate:       func(obj runtime.Object) field.ErrorList { return v.validate(obj, nil, false) },
		ValidateUpdate: func(obj, old runtime.Object) field.ErrorList { return v.validate(obj, old, false) },
		Warnings:       func(obj, _ runtime.Object) []string { return finalizerWarnings(obj) },
		Fields:         selectableFields(v.spec), Columns: columns, Row: row,
		Untyped: &kinds.Untyped{Family: f, Accept: v.coerceAndPrune, Read: v.convertFrom,
			Complete: v.withStatusDefaults, Schema: v.publishedSchema},
	}
	if sub := v.spec.Subresources; sub != nil {
		if sub.Status != nil {
			k.Status = statusOf(v)
			k.PrepareCreate = onUnstructured(func(u *unstructured.Unstructured) { delete(u.Object, "status") })
		}
		if sub.Scale != nil {
			k.Scale = scaleOf(sub.Scale)
		}
	}
	return k
}

func newEmpty(gvk schema.GroupVersionKind) func() runtime.Object {
	return func() runtime.Object {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(gvk)
		return u
	}
}

func onUnstructured(f func(*unstructured.Unstructured)) func(runtime.Object) {
	return func(obj runtime.Object) {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			f(u)
		}
	}
}

// statusOf returns the status subresource, which changes only the status.
func statusOf(v *definitionVersion) *kinds.Status {
	return &kinds.Status{
		KeepsAllMeta: true,
		Copy: func(to, from runtime.Object) {
			t, ok := to.(*unstructured.Unstructured)
			f, also := from.(*unstructured.Unstructured)
			if !ok || !also {
				return
			}
			if status, exists := f.Object["status"]; exists {
				t.Object["status"] = runtime.DeepCopyJSONValue(status)
			} else {
				delete(t.Object, "status")
			}
		},
		Validate: func(obj, old runtime.Object) field.ErrorList { return v.validate(obj, old, true) },
	}
}

// scaleOf reads and sets replicas at the paths that a definition declares, field names joined by dots.
func scaleOf(s *apiextensionsv1.CustomResourceSubresourceScale) *kinds.Scale {
	number := func(u *unstructured.Unstructured, path string) int32 {
		v, _, err := unstructured.NestedInt64(u.Object, splitPath(path)...)
		if err != nil {
			return 0
		}
		return int32(v)
	}
	return &kinds.Scale{
		Path: splitPath(s.SpecReplicasPath),
		Get: func(obj runtime.Object) (spec, status int32, selector string) {
			u, ok := obj.(*unstructured.Unstructured)
			if !ok {
				return 0, 0, ""
			}
			if s.LabelSelectorPath != nil && *s.LabelSelectorPath != "" {
				selector, _, _ = unstructured.NestedString(u.Object, splitPath(*s.LabelSelectorPath)...)
			}
			return number(u, s.SpecReplicasPath), number(u, s.StatusReplicasPath), selector
		},
		Set: func(obj runtime.Object, replicas int32) {
			if u, ok := obj.(*unstructured.Unstructured); ok {
				// Validation has refused objects in which a parent of the field is no object.
				_ = unstructured.SetNestedField(u.Object, int64(replicas), splitPath(s.SpecReplicasPath)...)
			}
		},
	}
}

func splitPath(path string) []string { return strings.Split(strings.TrimPrefix(path, "."), ".") }

// selectableFields returns a function that returns the fields by which clients may select objects of a version.
func selectableFields(v *apiextensionsv1.CustomResourceDefinitionVersion) func(runtime.Object) fields.Set {
	paths := map[string][]string{}
	for _, f := range v.SelectableFields {
		paths[strings.TrimPrefix(f.JSONPath, ".")] = splitPath(f.JSONPath)
	}
	if len(paths) == 0 {
		return nil
	}
	return func(obj runtime.Object) fields.Set {
		set := fields.Set{}
		u, ok := obj.(*unstructured.Unstructured)
		for name, path := range paths {
			set[name] = ""
			if !ok {
				continue
			}
			if value, found, err := unstructured.NestedFieldNoCopy(u.Object, path...); err == nil && found &&
				value != nil {
				set[name] = fmt.Sprint(value)
			}
		}
		return set
	}
}

// deprecation returns the warning for users of a version; empty if it is not deprecated.
func deprecation(
	d *apiextensionsv1.CustomResourceDefinition,
	v *apiextensionsv1.CustomResourceDefinitionVersion,
) string {
	switch {
	case !v.Deprecated:
		return ""
	case v.DeprecationWarning != nil:
		return *v.DeprecationWarning
	}
	return fmt.Sprintf("%s/%s %s is deprecated", d.Spec.Group, v.Name, d.Spec.Names.Kind)
}

// finalizerWarnings warns of finalizers whose names may conflict with other writers' finalizers.
func finalizerWarnings(obj runtime.Object) []string {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	var out []string
	for _, f := range u.GetFinalizers() {
		switch f {
		case metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents, "kubernetes":
			continue
		}
		if !strings.Contains(f, "/") {
			out = append(out, fmt.Sprintf("metadata.finalizers: %q: prefer a domain-qualified finalizer name "+
				"including a path (/) to avoid accidental conflicts with other finalizer writers", f))
		}
	}
	return out
}
