package policy

import (
	"context"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
	"clusterctl/daemons/api/apifake"
)

// grantedRight lists what a user may do, as VERB RESOURCE NAMESPACE/NAME. Everything else is refused.
type grantedRight string

func (r grantedRight) Authorize(_ context.Context, _ api.User, q api.Request) (api.Decision, string, error) {
	if string(r) == q.Verb+" "+q.GroupVersionResource.Resource+" "+q.Namespace+"/"+q.Name {
		return api.Allow, "", nil
	}
	return api.NoOpinion, "", nil
}

// configMapParams knows only ConfigMaps as parameters.
type configMapParams struct{}

func (configMapParams) Scope(schema.GroupVersionKind) (bool, bool) { return true, true }
func (configMapParams) Resource(gvk schema.GroupVersionKind) (schema.GroupVersionResource, bool) {
	return gvk.GroupVersion().WithResource("configmaps"), gvk.Kind == "ConfigMap"
}
func (configMapParams) Param(context.Context, schema.GroupVersionKind, string, string) (runtime.Object, error) {
	return nil, nil
}
func (configMapParams) Select(context.Context, schema.GroupVersionKind, string,
	labels.Selector) ([]runtime.Object, error) {
	return nil, nil
}

// Users cannot make policies read objects that they may not read themselves.
// Proves S12.
func TestPolicyAuthorsNeedAccessToParameters(t *testing.T) {
	policy := func(kind string) *admissionregistrationv1.ValidatingAdmissionPolicy {
		p := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
		if kind != "" {
			p.Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: kind}
		}
		return p
	}
	binding := func(policy string,
		ref *admissionregistrationv1.ParamRef) *admissionregistrationv1.ValidatingAdmissionPolicyBinding {
		return &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: policy, ParamRef: ref},
		}
	}
	named, chosen := &admissionregistrationv1.ParamRef{
		Name:      "c",
		Namespace: "n",
	}, &admissionregistrationv1.ParamRef{
		Namespace: "n",
		Selector:  &metav1.LabelSelector{},
	}
	mutating := &admissionregistrationv1.MutatingAdmissionPolicy{
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{ParamKind: policy("ConfigMap").Spec.ParamKind},
	}
	for name, c := range map[string]struct {
		obj, old runtime.Object
		right    grantedRight
		groups   []string
		refused  string
	}{
		"without parameters":       {obj: policy("")},
		"a kind":                   {obj: policy("ConfigMap"), right: "get configmaps /"},
		"a kind without the right": {obj: policy("ConfigMap"), right: "list configmaps /", refused: `spec.paramKind: Forbidden: user jane must have "get" permission on all objects of the referenced paramKind (kind=ConfigMap, apiVersion=v1)`},
		"a mutating policy":        {obj: mutating, refused: "spec.paramKind: Forbidden"},
		"an unknown kind":          {obj: policy("Widget"), right: "get * /"},
		"the same kind as before":  {obj: policy("ConfigMap"), old: policy("ConfigMap")},
		"another kind than before": {obj: policy("ConfigMap"), old: policy("Widget"), refused: "spec.paramKind"},
		"by a master":              {obj: policy("ConfigMap"), groups: []string{api.GroupMasters}},
		"an object":                {obj: binding("stored", named), right: "get configmaps n/c"},
		"an object without right":  {obj: binding("stored", named), right: "get configmaps n/d", refused: `spec.paramRef: Forbidden: user jane does not have "get" permission on the object referenced by paramRef`},
		"chosen objects":           {obj: binding("stored", chosen), right: "list configmaps n/"},
		"an object of an unknown": {obj: binding("nothing", named), right: "get configmaps n/c",
			refused: "spec.paramRef"},
		"no object":                 {obj: binding("stored", nil)},
		"the same object as before": {obj: binding("stored", named), old: binding("stored", named)},
		"that object for another one": {obj: binding("stored", named), old: binding("nothing", named),
			refused: "spec.paramRef"},
	} {
		t.Run(name, func(t *testing.T) {
			stored := policy("ConfigMap")
			stored.Name = "stored"
			p := NewAccess(Options{Objects: apifake.New(stored), May: c.right, Params: configMapParams{}})
			a := &api.Admission{Operation: "CREATE", User: api.User{Name: "jane", Groups: c.groups}, Object: c.obj,
				Resource: admissionregistrationv1.SchemeGroupVersion.WithResource("validatingadmissionpolicies")}
			if c.old != nil {
				a.Operation, a.Old = "UPDATE", c.old
			}
			err := p.Validate(t.Context(), a)
			if (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
				t.Errorf("got %v, want %q", err, c.refused)
			}
		})
	}
}
