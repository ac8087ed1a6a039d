package policy

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/api"
)

// Access is a validating admission plugin that keeps users from reading objects through policies. The author of a
// policy must be allowed to read all objects of the policy's parameter kind. The author of a binding must be allowed to
// read the parameters that the binding names.
type Access struct{ o Options }

// NewAccess returns the plugin.
func NewAccess(o Options) *Access { return &Access{o} }

// Validate refuses policies and bindings that read objects which their author may not read.
func (p *Access) Validate(ctx context.Context, a *api.Admission) error {
	if a.Resource.Group != admissionregistrationv1.GroupName || a.Subresource != "" ||
		a.Operation != "CREATE" && a.Operation != "UPDATE" ||
		p.o.May == nil ||
		a.User.InGroup(api.GroupMasters) {
		return nil
	}
	kind, ref, policies, ok := parametersOf(a.Object)
	if !ok {
		return nil
	}
	if a.Operation == "UPDATE" {
		oldKind, oldRef, oldPolicies, _ := parametersOf(a.Old)
		if equality.Semantic.DeepEqual(kind, oldKind) && equality.Semantic.DeepEqual(ref, oldRef) &&
			policies == oldPolicies {
			return nil
		}
	}
	if policies.name != "" {
		if ref == nil {
			return nil
		}
		if obj, exists := p.o.Objects.Get(policies.GroupResource, "", policies.name); exists {
			kind, _, _, _ = parametersOf(obj)
		}
		return p.checkParameters(ctx, a, kind, ref)
	}
	if kind == nil {
		return nil
	}
	if !p.isAllowed(ctx, a, api.Request{Verb: "get", GroupVersionResource: p.parameterResource(kind)}) {
		return fieldRefusal(
			a,
			field.NewPath("spec", "paramKind"),
			fmt.Sprintf(
				`user %v must have "get" permission on all objects of the referenced paramKind (kind=%s, apiVersion=%s)`,
				a.User.Name,
				kind.Kind,
				kind.APIVersion,
			),
		)
	}
	return nil
}

// policyRef is the policy that a binding names. Its name is empty if the object is a policy itself.
type policyRef struct {
	schema.GroupResource
	name string
}

// parametersOf returns the parameters that a policy or a binding refers to.
func parametersOf(
	obj runtime.Object,
) (kind *admissionregistrationv1.ParamKind, ref *admissionregistrationv1.ParamRef, policy policyRef, ok bool) {
	named := func(resource, name string) policyRef {
		return policyRef{schema.GroupResource{Group: admissionregistrationv1.GroupName, Resource: resource}, name}
	}
	switch o := obj.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		return o.Spec.ParamKind, nil, policyRef{}, true
	case *admissionregistrationv1.MutatingAdmissionPolicy:
		return o.Spec.ParamKind, nil, policyRef{}, true
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		return nil, o.Spec.ParamRef, named("validatingadmissionpolicies", o.Spec.PolicyName), true
	case *admissionregistrationv1.MutatingAdmissionPolicyBinding:
		return nil, o.Spec.ParamRef, named("mutatingadmissionpolicies", o.Spec.PolicyName), true
	}
	return nil, nil, policyRef{}, false
}

// checkParameters checks the right to read the parameters that a binding names. If the policy does not exist, or its
// kind is unknown, it requires the right to read everything.
func (p *Access) checkParameters(
	ctx context.Context,
	a *api.Admission,
	kind *admissionregistrationv1.ParamKind,
	ref *admissionregistrationv1.ParamRef,
) error {
	verb := "get"
	if ref.Name == "" {
		verb = "list"
	}
	if p.isAllowed(
		ctx,
		a,
		api.Request{Verb: verb, Namespace: ref.Namespace, Name: ref.Name,
			GroupVersionResource: p.parameterResource(kind)},
	) {
		return nil
	}
	return fieldRefusal(a, field.NewPath("spec", "paramRef"),
		fmt.Sprintf(`user %v does not have %q permission on the object referenced by paramRef`, a.User.Name, verb))
}

func (p *Access) parameterResource(kind *admissionregistrationv1.ParamKind) schema.GroupVersionResource {
	all := schema.GroupVersionResource{Group: "*", Version: "*", Resource: "*"}
	if kind == nil {
		return all
	}
	gv, err := schema.ParseGroupVersion(kind.APIVersion)
	if err != nil {
		return all
	}
	if r, ok := p.o.Params.Resource(gv.WithKind(kind.Kind)); ok {
		return r
	}
	return gv.WithResource("*")
}

func (p *Access) isAllowed(ctx context.Context, a *api.Admission, r api.Request) bool {
	r.Resource = true
	decision, _, err := p.o.May.Authorize(ctx, a.User, r)
	return err == nil && decision == api.Allow
}

func fieldRefusal(a *api.Admission, at *field.Path, reason string) error {
	return apierrors.NewInvalid(a.Kind.GroupKind(), a.Name, field.ErrorList{field.Forbidden(at, reason)})
}
