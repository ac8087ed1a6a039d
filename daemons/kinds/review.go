package kinds

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Reviews are requests that are answered and not stored.

func review(
	gv schema.GroupVersion,
	kind, resource, singular string,
	namespaced bool,
	make func() runtime.Object,
) *Kind {
	return &Kind{
		GVK: gv.WithKind(kind), Resource: resource, Singular: singular, Namespaced: namespaced,
		Virtual: true, Verbs: createOnly, New: make, NewList: made[metav1.List](),
	}
}

func tokenReviews() *Kind {
	return review(
		authenticationv1.SchemeGroupVersion,
		"TokenReview",
		"tokenreviews",
		"tokenreview",
		false,
		made[authenticationv1.TokenReview](),
	)
}

func selfSubjectReviews() *Kind {
	return review(
		authenticationv1.SchemeGroupVersion,
		"SelfSubjectReview",
		"selfsubjectreviews",
		"selfsubjectreview",
		false,
		made[authenticationv1.SelfSubjectReview](),
	)
}

func subjectAccessReviews() *Kind {
	return review(
		authorizationv1.SchemeGroupVersion,
		"SubjectAccessReview",
		"subjectaccessreviews",
		"subjectaccessreview",
		false,
		made[authorizationv1.SubjectAccessReview](),
	)
}

func localSubjectAccessReviews() *Kind {
	return review(
		authorizationv1.SchemeGroupVersion,
		"LocalSubjectAccessReview",
		"localsubjectaccessreviews",
		"localsubjectaccessreview",
		true,
		made[authorizationv1.LocalSubjectAccessReview](),
	)
}

func selfSubjectAccessReviews() *Kind {
	return review(
		authorizationv1.SchemeGroupVersion,
		"SelfSubjectAccessReview",
		"selfsubjectaccessreviews",
		"selfsubjectaccessreview",
		false,
		made[authorizationv1.SelfSubjectAccessReview](),
	)
}

func selfSubjectRulesReviews() *Kind {
	return review(
		authorizationv1.SchemeGroupVersion,
		"SelfSubjectRulesReview",
		"selfsubjectrulesreviews",
		"selfsubjectrulesreview",
		false,
		made[authorizationv1.SelfSubjectRulesReview](),
	)
}
