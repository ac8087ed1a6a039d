package review

import (
	"context"
	"errors"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/api"
)

func subjectAccess(authorizer api.Authorizer) Handler {
	return func(ctx context.Context, _ api.User, obj runtime.Object) (runtime.Object, error) {
		r := obj.(*authorizationv1.SubjectAccessReview).DeepCopy()
		if errs := validateSubject(&r.Spec); len(errs) > 0 {
			return nil, invalid("SubjectAccessReview", errs)
		}
		r.Status = decide(ctx, authorizer, userOf(&r.Spec), r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
		return r, nil
	}
}

func localSubjectAccess(authorizer api.Authorizer) Handler {
	return func(ctx context.Context, _ api.User, obj runtime.Object) (runtime.Object, error) {
		r := obj.(*authorizationv1.LocalSubjectAccessReview).DeepCopy()
		errs := validateSubject(&r.Spec)
		path := field.NewPath("spec")
		if r.Spec.NonResourceAttributes != nil {
			errs = append(errs, field.Invalid(path.Child("nonResourceAttributes"), r.Spec.NonResourceAttributes,
				"disallowed on this kind of request"))
		}
		if a := r.Spec.ResourceAttributes; a != nil && a.Namespace != r.Namespace {
			errs = append(errs, field.Invalid(path.Child("resourceAttributes", "namespace"), a.Namespace,
				"must match metadata.namespace"))
		}
		if len(errs) > 0 {
			return nil, invalid("LocalSubjectAccessReview", errs)
		}
		r.Status = decide(ctx, authorizer, userOf(&r.Spec), r.Spec.ResourceAttributes, nil)
		return r, nil
	}
}

func selfSubjectAccess(authorizer api.Authorizer) Handler {
	return func(ctx context.Context, u api.User, obj runtime.Object) (runtime.Object, error) {
		r := obj.(*authorizationv1.SelfSubjectAccessReview).DeepCopy()
		if errs := validateAttributes(r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes); len(errs) > 0 {
			return nil, invalid("SelfSubjectAccessReview", errs)
		}
		r.Status = decide(ctx, authorizer, u, r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
		return r, nil
	}
}

func invalid(kind string, errs field.ErrorList) error {
	return api.Invalid(schema.GroupKind{Group: authorizationv1.GroupName, Kind: kind}, "", errs)
}

func validateSubject(spec *authorizationv1.SubjectAccessReviewSpec) field.ErrorList {
	errs := validateAttributes(spec.ResourceAttributes, spec.NonResourceAttributes)
	if spec.User == "" && len(spec.Groups) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "user"), spec.User,
			"at least one of user or group must be specified"))
	}
	return errs
}

func validateAttributes(
	r *authorizationv1.ResourceAttributes,
	n *authorizationv1.NonResourceAttributes,
) field.ErrorList {
	path := field.NewPath("spec", "resourceAttributes")
	switch {
	case r != nil && n != nil:
		return field.ErrorList{
			field.Invalid(field.NewPath("spec", "nonResourceAttributes"), n,
				"cannot be specified in combination with resourceAttributes"),
		}
	case r == nil && n == nil:
		return field.ErrorList{
			field.Invalid(path, n, "exactly one of nonResourceAttributes or resourceAttributes must be specified"),
		}
	case r != nil:
		return validateSelectors(r, path)
	}
	return nil
}

func userOf(spec *authorizationv1.SubjectAccessReviewSpec) api.User {
	u := api.User{Name: spec.User, UID: spec.UID, Groups: spec.Groups}
	for k, v := range spec.Extra {
		if u.Extra == nil {
			u.Extra = map[string][]string{}
		}
		u.Extra[k] = v
	}
	return u
}

func decide(
	ctx context.Context,
	authorizer api.Authorizer,
	u api.User,
	r *authorizationv1.ResourceAttributes,
	n *authorizationv1.NonResourceAttributes,
) authorizationv1.SubjectAccessReviewStatus {
	request := api.Request{}
	if r != nil {
		request = api.Request{
			Verb: r.Verb, Resource: true, Subresource: r.Subresource, Namespace: r.Namespace, Name: r.Name,
			GroupVersionResource: schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Resource},
		}
		request.FieldSelector, request.LabelSelector = selectors(r)
	} else if n != nil {
		request.Verb, request.Path = n.Verb, n.Path
	}
	d, reason, err := authorizer.Authorize(ctx, u, request)
	status := authorizationv1.SubjectAccessReviewStatus{Allowed: d == api.Allow, Denied: d == api.Deny, Reason: reason}
	if err = errors.Join(err, ignoredSelectors(r)); err != nil {
		status.EvaluationError = err.Error()
	}
	return status
}

func selfSubjectRules(rules Ruler) Handler {
	return func(_ context.Context, u api.User, obj runtime.Object) (runtime.Object, error) {
		r := obj.(*authorizationv1.SelfSubjectRulesReview).DeepCopy()
		if r.Spec.Namespace == "" {
			return nil, apierrors.NewBadRequest("no namespace on request")
		}
		r.Status = authorizationv1.SubjectRulesReviewStatus{
			ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{},
		}
		for _, rule := range rules.Rules(u, r.Spec.Namespace) {
			if len(rule.NonResourceURLs) > 0 {
				r.Status.NonResourceRules = append(r.Status.NonResourceRules,
					authorizationv1.NonResourceRule{Verbs: rule.Verbs, NonResourceURLs: rule.NonResourceURLs})
			} else {
				r.Status.ResourceRules = append(r.Status.ResourceRules, authorizationv1.ResourceRule{
					Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources,
					ResourceNames: rule.ResourceNames,
				})
			}
		}
		if _, node := u.Extra["authentication.kubernetes.io/node-name"]; node || u.InGroup(api.GroupNodes) {
			r.Status.Incomplete, r.Status.EvaluationError = true, "node authorizer does not support user rule "+
				"resolution"
		}
		return r, nil
	}
}
