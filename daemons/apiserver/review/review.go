// Package review answers review kinds: the user of a token, the caller's own identity, and whether a user may perform a
// request. It calls the API server's authenticators and authorizers.
package review

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
)

// Handler answers one review.
type Handler = func(ctx context.Context, u api.User, obj runtime.Object) (runtime.Object, error)

// Verifier returns the user of a token, and those of the wanted audiences that the token is valid for.
type Verifier interface {
	Verify(ctx context.Context, token string, audiences []string) (api.User, []string, error)
}

// Ruler returns what a user may do in a namespace.
type Ruler interface {
	Rules(u api.User, namespace string) []rbacv1.PolicyRule
}

// All returns the handler of each virtual kind. If tokens is nil, no token is valid.
func All(authorizer api.Authorizer, rules Ruler, tokens Verifier) map[schema.GroupResource]Handler {
	access, authn := authorizationv1.GroupName, authenticationv1.GroupName
	return map[schema.GroupResource]Handler{
		{Group: access, Resource: "subjectaccessreviews"}:      subjectAccess(authorizer),
		{Group: access, Resource: "localsubjectaccessreviews"}: localSubjectAccess(authorizer),
		{Group: access, Resource: "selfsubjectaccessreviews"}:  selfSubjectAccess(authorizer),
		{Group: access, Resource: "selfsubjectrulesreviews"}:   selfSubjectRules(rules),
		{Group: authn, Resource: "tokenreviews"}:               tokenReview(tokens),
		{Group: authn, Resource: "selfsubjectreviews"}:         selfSubject,
	}
}
