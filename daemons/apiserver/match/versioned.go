package match

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"clusterctl/daemons/api"
)

// Versioned returns a write in the form that expressions and webhooks receive, in a version.
func Versioned(ctx context.Context, a *api.Admission, v api.Version) (*admission.VersionedAttributes, error) {
	chosen := RequestedVersion(a)
	var options runtime.Object
	if a.Origin != nil {
		options = a.Origin.Options()
	}
	object, old := a.Object, a.Old
	var err error
	if v.Kind != a.Kind && a.Versions != nil {
		if object != nil {
			if object, err = a.Versions.To(ctx, object, v); err != nil {
				return nil, err
			}
		}
		if old != nil {
			if old, err = a.Versions.To(ctx, old, v); err != nil {
				return nil, err
			}
		}
	} else if object != nil {
		object.GetObjectKind().SetGroupVersionKind(v.Kind)
	}
	namespace := a.Namespace
	if isNamespace(a) {
		namespace = a.Name
	}
	seen := &admission.VersionedAttributes{VersionedKind: v.Kind}
	// An interface with a nil pointer would not be nil.
	if object != nil {
		seen.VersionedObject.Set(object)
	}
	if old != nil {
		seen.VersionedOldObject.Set(old)
	}
	seen.Attributes = admission.NewAttributesRecord(object, old, chosen.Kind, namespace, a.Name, chosen.Resource,
		a.Subresource, admission.Operation(a.Operation), options, a.DryRun, userInfo(a.User))
	return seen, nil
}

func userInfo(u api.User) user.Info {
	return &user.DefaultInfo{Name: u.Name, UID: u.UID, Groups: u.Groups, Extra: u.Extra}
}

// ConditionsHold reports whether all conditions hold. A condition that is false takes precedence over one that cannot
// be evaluated. Without a false one, the error of the latter is returned.
func ConditionsHold(
	ctx context.Context,
	conditions plugincel.ConditionEvaluator,
	seen *admission.VersionedAttributes,
	v api.Version,
	bindings plugincel.OptionalVariableBindings,
	namespace *corev1.Namespace,
) (bool, error) {
	if conditions == nil {
		return true, nil
	}
	request := plugincel.CreateAdmissionRequest(seen.Attributes, metav1.GroupVersionResource(v.Resource),
		metav1.GroupVersionKind(v.Kind))
	results, _, err := conditions.ForInput(ctx, seen, request, bindings, namespace,
		celconfig.RuntimeCELCostBudgetMatchConditions)
	if err != nil {
		return false, fmt.Errorf("evaluate the match conditions: %w", err)
	}
	var failed []error
	for _, r := range results {
		switch {
		case r.Error != nil:
			failed = append(failed, r.Error)
		case r.EvalResult == nil:
		case r.EvalResult.Value() == false:
			return false, nil
		case r.EvalResult.Value() != true:
			failed = append(failed, fmt.Errorf("the match condition %q came to %v",
				r.ExpressionAccessor.GetExpression(), r.EvalResult.Value()))
		}
	}
	return len(failed) == 0, errors.Join(failed...)
}

// NamespaceOf returns the namespace of a write for expressions; nil for an object without a namespace.
func NamespaceOf(a *api.Admission, objects api.Objects) *corev1.Namespace {
	if !isNamespaced(a) {
		return nil
	}
	if obj, ok := Namespace(a, objects); ok {
		if ns, ok := obj.(*corev1.Namespace); ok {
			return ns
		}
	}
	return nil
}

// Authorizer returns an authorizer for expressions.
func Authorizer(authz api.Authorizer) authorizer.UnconditionalAuthorizer {
	if authz == nil {
		return noOpinion{}
	}
	return serverAuthorizer{authz}
}

// noOpinion has no opinion. It is used for a server without authorizers.
type noOpinion struct{}

// Authorize implements authorizer.UnconditionalAuthorizer.
func (noOpinion) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionNoOpinion, "", nil
}

type serverAuthorizer struct{ authorizer api.Authorizer }

// Authorize implements authorizer.UnconditionalAuthorizer.
func (w serverAuthorizer) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	user := api.User{
		Name:   a.GetUser().GetName(),
		UID:    a.GetUser().GetUID(),
		Groups: a.GetUser().GetGroups(),
		Extra:  a.GetUser().GetExtra(),
	}
	r := api.Request{
		Verb: a.GetVerb(), Path: a.GetPath(), Resource: a.IsResourceRequest(),
		Subresource: a.GetSubresource(), Namespace: a.GetNamespace(), Name: a.GetName(),
	}
	r.Group, r.GroupVersionResource.Version, r.GroupVersionResource.Resource = a.GetAPIGroup(), a.GetAPIVersion(),
		a.GetResource()
	if chosen, err := a.GetFieldSelector(); err == nil {
		r.FieldSelector = join(chosen,
			func(q fields.Requirement) string { return q.Field + string(q.Operator) + q.Value })
	}
	if chosen, err := a.GetLabelSelector(); err == nil {
		r.LabelSelector = join(chosen, func(q labels.Requirement) string { return q.String() })
	}
	decision, reason, err := w.authorizer.Authorize(ctx, user, r)
	switch decision {
	case api.Allow:
		return authorizer.DecisionAllow, reason, err
	case api.Deny:
		return authorizer.DecisionDeny, reason, err
	}
	return authorizer.DecisionNoOpinion, reason, err
}

func join[T any](list []T, text func(T) string) string {
	var out []string
	for _, one := range list {
		out = append(out, text(one))
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}
