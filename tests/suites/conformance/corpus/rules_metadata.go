package main

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfield "k8s.io/apimachinery/pkg/util/validation/field"
)

// wrongMetadata returns objects with wrong metadata, for any kind that is stored. The rules of names, labels,
// annotations, finalizers and owners are the same for all kinds, and are published as code.
func wrongMetadata() []wrongObject {
	const uid = "5f0a2c1e-0000-4000-8000-000000000000"
	owner := func(kind, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: kind, Name: name, UID: uid}},
		}
	}
	var out []wrongObject
	for _, m := range []metav1.ObjectMeta{
		{Labels: map[string]string{"a b": "c"}}, {Labels: map[string]string{"a": "-c"}},
		{Annotations: map[string]string{"/a": "c"}},
		owner("ConfigMap", ""), owner("", "a"), owner("Event", "a"),
	} {
		set := map[string]any{}
		switch {
		case m.Labels != nil:
			set["metadata.labels"] = m.Labels
		case m.Annotations != nil:
			set["metadata.annotations"] = m.Annotations
		default:
			set["metadata.ownerReferences"] = m.OwnerReferences
		}
		m.Name = "x"
		errs := validation.ValidateObjectMeta(&m, false, validation.NameIsDNSSubdomain, utilfield.NewPath("metadata"))
		w := wrongObject{Rule: "metadata", Set: set}
		for _, e := range errs {
			w.Causes = append(w.Causes, wrongCause{Field: e.Field, Reason: string(e.Type), Message: e.ErrorBody()})
		}
		out = append(out, w)
	}
	return out
}

// wrongKindMetadata returns objects whose metadata is wrong in ways that depend on the kind. No kind accepts a percent
// sign in names. For wrong types, the decoder's error contains the kind.
func wrongKindMetadata(p *upstreamCode, _ *docComments, k *sampleKind) []wrongObject {
	var out []wrongObject
	if !k.IsAnswerOnly {
		out = append(
			out,
			applyExceptions(
				k,
				"metadata.name",
				wrongObject{Rule: "metadata", Set: map[string]any{"metadata.name": "a%b"},
					By:     []string{"post", "apply"},
					Causes: []wrongCause{{Field: "metadata.name", Reason: "FieldValueInvalid"}}},
			),
		)
	}
	for path, v := range map[string]any{"metadata.labels": []any{7}, "metadata.annotations": map[string]any{"a": 1},
		"metadata.finalizers": "a"} {
		out = append(out, p.undecodableObject(k, "metadata", path, v))
	}
	slices.SortStableFunc(out, func(a, b wrongObject) int { return strings.Compare(a.Decoder, b.Decoder) })
	return append(out, p.unknownField(k, "metadata.nobodyKnows", 1))
}
