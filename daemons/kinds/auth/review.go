package auth

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/kinds/kind"
)

// Reviews are requests that are answered and not stored.

func newReview(
	gv schema.GroupVersion,
	name, resource, singular string,
	namespaced bool,
	make func() runtime.Object,
) *kind.Kind {
	return &kind.Kind{
		GVK: gv.WithKind(name), Resource: resource, Singular: singular, Namespaced: namespaced,
		Virtual: true, Verbs: kind.CreateOnlyVerbs, New: make, NewList: kind.New[metav1.List](),
	}
}

func TokenReviews() *kind.Kind {
	return newReview(authenticationv1.SchemeGroupVersion, "TokenReview", "tokenreviews", "tokenreview", false,
		kind.New[authenticationv1.TokenReview]())
}

func SelfSubjectReviews() *kind.Kind {
	return newReview(authenticationv1.SchemeGroupVersion, "SelfSubjectReview", "selfsubjectreviews",
		"selfsubjectreview", false, kind.New[authenticationv1.SelfSubjectReview]())
}

func SubjectAccessReviews() *kind.Kind {
	return newReview(authorizationv1.SchemeGroupVersion, "SubjectAccessReview", "subjectaccessreviews",
		"subjectaccessreview", false, kind.New[authorizationv1.SubjectAccessReview]())
}

func LocalSubjectAccessReviews() *kind.Kind {
	return newReview(authorizationv1.SchemeGroupVersion, "LocalSubjectAccessReview", "localsubjectaccessreviews",
		"localsubjectaccessreview", true, kind.New[authorizationv1.LocalSubjectAccessReview]())
}

func SelfSubjectAccessReviews() *kind.Kind {
	return newReview(authorizationv1.SchemeGroupVersion, "SelfSubjectAccessReview", "selfsubjectaccessreviews",
		"selfsubjectaccessreview", false, kind.New[authorizationv1.SelfSubjectAccessReview]())
}

func SelfSubjectRulesReviews() *kind.Kind {
	return newReview(authorizationv1.SchemeGroupVersion, "SelfSubjectRulesReview", "selfsubjectrulesreviews",
		"selfsubjectrulesreview", false, kind.New[authorizationv1.SelfSubjectRulesReview]())
}
