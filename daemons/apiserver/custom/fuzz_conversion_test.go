package custom

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/apiserver/backend"
	"clusterctl/daemons/kinds"
)

// fixedResponse is a webhook that always responds with the same bytes.
type fixedResponse struct{ text []byte }

func (a fixedResponse) Call(_ context.Context, _ backend.Webhook, _ time.Duration, in, out any) error {
	if err := json.Unmarshal(a.text, out); err != nil {
		return err
	}
	if answer := out.(*apiextensionsv1.ConversionReview); answer.Response != nil && answer.Response.UID == "" {
		// a recorded response cannot know the UID of the request
		answer.Response.UID = in.(*apiextensionsv1.ConversionReview).Request.UID
	}
	return nil
}

// FuzzConversion processes arbitrary responses of a conversion webhook. The result must be an error, or the given
// objects in the other version with unchanged names and immutable metadata.
func FuzzConversion(f *testing.F) {
	const head = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":{"uid":"","result":{"status":"Success"},"convertedObjects":[`
	for _, converted := range []string{
		`{"apiVersion":"example.com/v2","kind":"Widget","metadata":{"name":"a","namespace":"n","uid":"u","labels":{"a":"b"},"annotations":{"c":"d"},"generation":7},"spec":{"x":[1,{"y":null}]}}`,
		`{"apiVersion":"example.com/v2","kind":"Widget","metadata":{"name":"a","namespace":"n","uid":"u","labels":[1],"annotations":"no"}}`,
		`{"apiVersion":"example.com/v2","kind":"Widget","metadata":7}`, `null`, `{"apiVersion":"v1","kind":"List","items":[]}`, `7`,
	} {
		f.Add([]byte(head + converted + `]}}`))
	}
	f.Add([]byte(`{"response":{"result":{"status":"Failure","message":"no"}}}`))
	f.Add(
		[]byte(
			`{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":"ConversionReview","response":{"convertedObjects":[]}}`,
		),
	)
	to := &kinds.Kind{
		GVK:      schema.GroupVersionKind{Group: "example.com", Version: "v2", Kind: "Widget"},
		Resource: "widgets",
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, version := range []string{"v1", "v1beta1"} {
			for _, metadata := range []map[string]any{{"name": "a", "namespace": "n", "uid": "u",
				"generation": int64(3), "labels": map[string]any{"old": "x"}}, nil} {
				from := &unstructured.Unstructured{
					Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget"},
				}
				if metadata != nil {
					from.Object["metadata"] = metadata
				}
				c := &webhookConverter{call: fixedResponse{text}, version: version}
				out, err := c.convert(t.Context(), []*unstructured.Unstructured{from}, to)
				if err != nil {
					continue
				}
				if len(out) != 1 || out[0].GroupVersionKind() != to.GVK || out[0].GetName() != from.GetName() ||
					out[0].GetUID() != from.GetUID() ||
					out[0].GetGeneration() != from.GetGeneration() {
					t.Errorf("converted to %v", out)
				}
				if _, err := out[0].MarshalJSON(); err != nil {
					t.Errorf("what was converted cannot be written: %v", err)
				}
				if from.GetAPIVersion() != "example.com/v1" ||
					from.GetLabels()["old"] != map[bool]string{true: "x"}[metadata != nil] {
					t.Errorf("what was to be converted has changed: %v", from)
				}
			}
		}
	})
}
