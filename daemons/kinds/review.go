package kinds

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Reviews are requests that are answered and not stored.

func newReview(
	gv schema.GroupVersion,
	name, resource, singular string,
	namespaced bool,
	make func() runtime.Object,
) *Kind {
	return &Kind{
		GVK: gv.WithKind(name), Resource: resource, Singular: singular, Namespaced: namespaced,
		Virtual: true, Verbs: createOnlyVerbs, New: make, NewList: newOf[metav1.List](),
	}
}

func tokenReviews() *Kind {
	return newReview(
		authenticationv1.SchemeGroupVersion,
		"TokenReview",
		"tokenreviews",
		"tokenreview",
		false,
		newOf[authenticationv1.TokenReview](),
	)
}

func selfSubjectReviews() *Kind {
	return newReview(
		authenticationv1.SchemeGroupVersion,
		"SelfSubjectReview",
		"selfsubjectreviews",
		"selfsubjectreview",
		false,
		newOf[authenticationv1.SelfSubjectReview](),
	)
}

func subjectAccessReviews() *Kind {
	return newReview(
		authorizationv1.SchemeGroupVersion,
		"SubjectAccessReview",
		"subjectaccessreviews",
		"subjectaccessreview",
		false,
		newOf[authorizationv1.SubjectAccessReview](),
	)
}

func localSubjectAccessReviews() *Kind {
	return newReview(
		authorizationv1.SchemeGroupVersion,
		"LocalSubjectAccessReview",
		"localsubjectaccessreviews",
		"localsubjectaccessreview",
		true,
		newOf[authorizationv1.LocalSubjectAccessReview](),
	)
}

func selfSubjectAccessReviews() *Kind {
	return newReview(
		authorizationv1.SchemeGroupVersion,
		"SelfSubjectAccessReview",
		"selfsubjectaccessreviews",
		"selfsubjectaccessreview",
		false,
		newOf[authorizationv1.SelfSubjectAccessReview](),
	)
}

func selfSubjectRulesReviews() *Kind {
	return newReview(
		authorizationv1.SchemeGroupVersion,
		"SelfSubjectRulesReview",
		"selfsubjectrulesreviews",
		"selfsubjectrulesreview",
		false,
		newOf[authorizationv1.SelfSubjectRulesReview](),
	)
}
