package custom

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/apiserver/backend"
	"clusterctl/daemons/kinds"
)

func definition(
	uid types.UID,
	names apiextensionsv1.CustomResourceDefinitionNames,
) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: names.Plural + ".example.com", UID: uid},
		Spec:       apiextensionsv1.CustomResourceDefinitionSpec{Group: "example.com", Names: names},
	}
}

func conditionOf(
	s apiextensionsv1.CustomResourceDefinitionStatus,
	of apiextensionsv1.CustomResourceDefinitionConditionType,
) (status, reason, message string) {
	for _, c := range s.Conditions {
		if c.Type == of {
			return string(c.Status), c.Reason, c.Message
		}
	}
	return "", "", ""
}

// A name belongs to the first definition of a group that has it.
// Proves S12.
func TestNamesAreAcceptedOnce(t *testing.T) {
	now := time.Now()
	first := definition(
		"1",
		apiextensionsv1.CustomResourceDefinitionNames{
			Plural:     "widgets",
			Singular:   "widget",
			Kind:       "Widget",
			ListKind:   "WidgetList",
			ShortNames: []string{"wi"},
		},
	)
	first.Status = NewStatus(first, nil, now)
	if status, _, _ := conditionOf(first.Status, apiextensionsv1.Established); status != "True" ||
		first.Status.AcceptedNames.Plural != "widgets" {
		t.Fatalf("%+v", first.Status)
	}
	for name, c := range map[string]struct {
		names           apiextensionsv1.CustomResourceDefinitionNames
		reason, message string
	}{
		"others": {apiextensionsv1.CustomResourceDefinitionNames{Plural: "gadgets", Singular: "gadget",
			Kind: "Gadget", ListKind: "GadgetList"}, "NoConflicts", "no conflicts found"},
		"the kind":         {apiextensionsv1.CustomResourceDefinitionNames{Plural: "gadgets", Singular: "gadget", Kind: "Widget", ListKind: "GadgetList"}, "KindConflict", `"Widget" is already in use`},
		"the list's kind":  {apiextensionsv1.CustomResourceDefinitionNames{Plural: "gadgets", Singular: "gadget", Kind: "Gadget", ListKind: "WidgetList"}, "ListKindConflict", `"WidgetList" is already in use`},
		"a short name":     {apiextensionsv1.CustomResourceDefinitionNames{Plural: "gadgets", Singular: "gadget", Kind: "Gadget", ListKind: "GadgetList", ShortNames: []string{"g", "wi"}}, "ShortNamesConflict", `"wi" is already in use`},
		"short for plural": {apiextensionsv1.CustomResourceDefinitionNames{Plural: "wi", Singular: "gadget", Kind: "Gadget", ListKind: "GadgetList"}, "PluralConflict", `"wi" is already in use`},
		"the singular":     {apiextensionsv1.CustomResourceDefinitionNames{Plural: "gadgets", Singular: "widget", Kind: "Gadget", ListKind: "GadgetList"}, "SingularConflict", `"widget" is already in use`},
	} {
		second := definition("2", c.names)
		second.Status = NewStatus(second, NamesOf([]*apiextensionsv1.CustomResourceDefinition{first, second}), now)
		_, reason, message := conditionOf(second.Status, apiextensionsv1.NamesAccepted)
		established, _, _ := conditionOf(second.Status, apiextensionsv1.Established)
		if reason != c.reason || message != c.message || (established == "True") != (reason == "NoConflicts") {
			t.Errorf("%s: %s %q, established %s; want %s %q", name, reason, message, established, c.reason, c.message)
		}
		second.Spec.Group = "else.example.com"
		if _, reason, _ := conditionOf(NewStatus(second, NamesOf([]*apiextensionsv1.CustomResourceDefinition{first}),
			now),
			apiextensionsv1.NamesAccepted); reason != "NoConflicts" {
			t.Errorf("%s: %s in another group", name, reason)
		}
	}
	again := first.DeepCopy()
	again.Status = NewStatus(again, NamesOf([]*apiextensionsv1.CustomResourceDefinition{first}), now.Add(time.Hour))
	if at := again.Status.Conditions[0].LastTransitionTime; !at.Equal(&first.Status.Conditions[0].LastTransitionTime) {
		t.Errorf("nothing has changed, and its condition is of %v", at)
	}
}

// A condition states whether a definition in one of Kubernetes' own groups was approved.
// Proves S12.
func TestProtectedGroupsNeedApproval(t *testing.T) {
	for annotation, want := range map[string][2]string{
		"https://github.com/kubernetes/enhancements/pull/1111": {"True", "ApprovedAnnotation"},
		"unapproved, for a test":                               {"False", "UnapprovedAnnotation"},
		"nonsense":                                             {"False", "InvalidAnnotation"},
		"":                                                     {"False", "MissingAnnotation"},
	} {
		d := definition(
			"1",
			apiextensionsv1.CustomResourceDefinitionNames{
				Plural:   "widgets",
				Singular: "widget",
				Kind:     "Widget",
				ListKind: "WidgetList",
			},
		)
		if status, _, _ := conditionOf(NewStatus(d, nil, time.Now()),
			apiextensionsv1.KubernetesAPIApprovalPolicyConformant); status != "" {
			t.Errorf("an unprotected group: %s", status)
		}
		d.Spec.Group = "foo.k8s.io"
		if annotation != "" {
			d.Annotations = map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: annotation}
		}
		status, reason, message := conditionOf(NewStatus(d, nil, time.Now()),
			apiextensionsv1.KubernetesAPIApprovalPolicyConformant)
		if status != want[0] || reason != want[1] || message == "" {
			t.Errorf("%q: %s %s %q, want %v", annotation, status, reason, message, want)
		}
	}
}

// A column shows the value at its path in the form of its type, or nothing.
// Proves S12.
func TestColumnsShowValuesAtTheirPaths(t *testing.T) {
	object := map[string]any{
		"spec": map[string]any{
			"n":     int64(3),
			"f":     2.5,
			"yes":   true,
			"text":  "a",
			"list":  []any{"x", "y"},
			"when":  "nonsense",
			"large": 1e300,
		},
		"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "False"}}},
	}
	for _, c := range []struct {
		path, kind string
		want       any
	}{
		{".spec.n", "integer", int64(3)}, {".spec.f", "integer", int64(2)}, {".spec.n", "number", 3.0},
		{".spec.text", "integer", nil}, {".spec.yes", "boolean", true},
		{".spec.text", "string", "a"}, {".spec.n", "string", "3"}, {".spec.list[1]", "string", "y"},
		{".spec.none", "string", nil}, {".spec.when", "date", "<invalid>"}, {".spec.n", "date", nil},
		{`.status.conditions[?(@.type=="Ready")].status`, "string", "False"}, {".spec[", "string", nil}, {".spec.text", "boolean", nil},
	} {
		show := cellFunc(apiextensionsv1.CustomResourceColumnDefinition{Name: "A", JSONPath: c.path, Type: c.kind})
		if got := show(object); got != c.want {
			t.Errorf("%s as %s shows %v, want %v", c.path, c.kind, got, c.want)
		}
	}
}

// conversionFunc is a conversion webhook.
type conversionFunc func(sent, answer *apiextensionsv1.ConversionReview) error

func (f conversionFunc) Call(_ context.Context, _ backend.Webhook, _ time.Duration, in, out any) error {
	return f(in.(*apiextensionsv1.ConversionReview), out.(*apiextensionsv1.ConversionReview))
}

// A conversion webhook's response is accepted only if it is complete, and changes only what it may change.
// Proves S12.
//
//style:long a table of responses of a webhook, with the conversion that each answers
func TestIncompleteConversionsAreRejected(t *testing.T) {
	url := "https://a.example.com/"
	d := definition("1", apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"})
	d.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ClientConfig: &apiextensionsv1.WebhookClientConfig{
				URL: &url,
			}, ConversionReviewVersions: []string{"v2", "v1"},
		},
	}
	to := &kinds.Kind{GVK: schema.GroupVersionKind{Group: "example.com", Version: "v2", Kind: "Widget"}}
	made := func(change ...string) []byte {
		text := `{"apiVersion":"example.com/v2","kind":"Widget","metadata":{"name":"w","uid":"u","labels":{"new":"x"}},"spec":{"size":1}}`
		return []byte(strings.NewReplacer(change...).Replace(text))
	}
	whole := func(objects ...[]byte) conversionFunc {
		return func(sent, answer *apiextensionsv1.ConversionReview) error {
			answer.TypeMeta = sent.TypeMeta
			answer.Response = &apiextensionsv1.ConversionResponse{
				UID:    sent.Request.UID,
				Result: metav1.Status{Status: metav1.StatusSuccess},
			}
			for _, o := range objects {
				answer.Response.ConvertedObjects = append(answer.Response.ConvertedObjects,
					runtime.RawExtension{Raw: o})
			}
			return nil
		}
	}
	and := func(a conversionFunc, change func(*apiextensionsv1.ConversionReview)) conversionFunc {
		return func(sent, answer *apiextensionsv1.ConversionReview) error {
			err := a(sent, answer)
			change(answer)
			return err
		}
	}
	for name, c := range map[string]struct {
		hook conversionFunc
		want string
	}{
		"whole": {whole(made()), ""},
		"no answer": {func(*apiextensionsv1.ConversionReview, *apiextensionsv1.ConversionReview) error {
			return errors.New("refused")
		}, "refused"},
		"nothing in it": {func(*apiextensionsv1.ConversionReview,
			*apiextensionsv1.ConversionReview) error {
			return nil
		}, "no response provided"},
		"another's": {and(whole(made()), func(r *apiextensionsv1.ConversionReview) { r.Response.UID = "x" }),
			"expected response.uid"},
		"another kind": {and(whole(made()), func(r *apiextensionsv1.ConversionReview) { r.Kind = "Other" }),
			"Kind=Other"},
		"failed": {and(whole(), func(r *apiextensionsv1.ConversionReview) {
			r.Response.Result = metav1.Status{Status: "Failure", Message: "too old"}
		}), "too old"},
		"failed in silence": {and(whole(),
			func(r *apiextensionsv1.ConversionReview) { r.Response.Result = metav1.Status{Status: "Failure"} }),
			"without an explanation"},
		"too few":            {whole(), "returned 0 objects, expected 1"},
		"another version":    {whole(made("/v2", "/v3")), "expected example.com/v2"},
		"another name":       {whole(made(`"w"`, `"z"`)), "metadata.name must not change"},
		"another uid":        {whole(made(`"u"`, `"z"`)), "metadata.uid must not change"},
		"not JSON":           {whole([]byte("{")), "invalid converted object at index 0"},
		"other annotations":  {whole(made(`"labels"`, `"finalizers":["f"],"annotations"`)), ""},
		"an older namespace": {whole(made(`"name"`, `"namespace":"n","name"`)), "metadata.namespace must not change"},
	} {
		conv, err := newConverter(d, c.hook)
		if err != nil {
			t.Fatal(err)
		}
		from := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","uid":"u","resourceVersion":"7","labels":{"old":"x"}}}`), from); err != nil {
			t.Fatal(err)
		}
		out, err := conv.convert(t.Context(), []*unstructured.Unstructured{from}, to)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if err == nil &&
			(out[0].GetResourceVersion() != "7" || out[0].GetLabels()["old"] != "" || len(out[0].GetFinalizers()) > 0) {
			t.Errorf("%s: %v", name, out[0].Object)
		}
	}
	d.Spec.Conversion.Webhook.ConversionReviewVersions = []string{"v2"}
	if _, err := newConverter(d, whole()); err == nil {
		t.Error("a webhook that understands no version is taken")
	}
}
