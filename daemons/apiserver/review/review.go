// Package review answers the kinds that are questions: who a token belongs to, who
// the asker is, and who may do what. It decides nothing itself: it asks the API
// server's own authenticators and authorizers.
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

// Verifier tells whose token it is, and for which of the wanted audiences.
type Verifier interface {
	Verify(ctx context.Context, token string, audiences []string) (api.User, []string, error)
}

// Ruler lists what a user may do in a namespace.
type Ruler interface {
	Rules(u api.User, namespace string) []rbacv1.PolicyRule
}

// All returns the handler of each virtual kind. A nil tokens knows no token.
func All(may api.Authorizer, rules Ruler, tokens Verifier) map[schema.GroupResource]Handler {
	access, authn := authorizationv1.GroupName, authenticationv1.GroupName
	return map[schema.GroupResource]Handler{
		{Group: access, Resource: "subjectaccessreviews"}:      subjectAccess(may),
		{Group: access, Resource: "localsubjectaccessreviews"}: localSubjectAccess(may),
		{Group: access, Resource: "selfsubjectaccessreviews"}:  selfSubjectAccess(may),
		{Group: access, Resource: "selfsubjectrulesreviews"}:   selfSubjectRules(rules),
		{Group: authn, Resource: "tokenreviews"}:               tokenReview(tokens),
		{Group: authn, Resource: "selfsubjectreviews"}:         selfSubject,
	}
}
