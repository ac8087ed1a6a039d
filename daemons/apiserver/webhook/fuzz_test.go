package webhook

import (
	"encoding/json"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/apiserver/jsonpatch"
	"clusterctl/daemons/apiserver/match"
)

// FuzzAnswer applies arbitrary responses of a webhook.
func FuzzAnswer(f *testing.F) {
	for _, patch := range []string{
		`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}},{"op":"copy","from":"/metadata","path":"/data"},{"op":"move","from":"/data/a","path":"/data/b"}]`,
		`[{"op":"test","path":"","value":null},{"op":"remove","path":"/metadata/name"}]`, `[{"op":"replace","path":"/kind","value":7}]`, `{}`, `[{"op":"add","path":"/a/-","value":1}]`,
	} {
		kind := admissionv1.PatchTypeJSONPatch
		text, err := json.Marshal(
			admissionv1.AdmissionReview{
				Response: &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(patch), PatchType: &kind},
			},
		)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add(
		[]byte(
			`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"x","allowed":false,"status":{"code":700,"reason":"A","message":"b","details":{"causes":[{}]}},"warnings":["\u0000"]}}`,
		),
	)
	f.Fuzz(func(t *testing.T, text []byte) {
		answer := &admissionv1.AdmissionReview{}
		if json.Unmarshal(text, answer) != nil || answer.Response == nil {
			return
		}
		r := answer.Response
		for _, strict := range []bool{false, true} {
			_ = checkPatch(r, strict, !strict)
		}
		if deniedError("a", r.Result) == nil {
			t.Error("a refusal is none")
		}
		operations, err := jsonpatch.Decode(r.Patch)
		if err != nil {
			return
		}
		for _, before := range []runtime.Object{
			&corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
				ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"a": "b"}},
			&unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "A",
				"metadata": map[string]any{"name": "a"}, "data": map[string]any{"a": "b"}}},
		} {
			after, err := applyPatch(before, operations)
			if err == nil {
				match.Equal(before, after)
			}
		}
	})
}
