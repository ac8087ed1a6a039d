package admission

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
)

// Issuer answers serviceaccounts/token.
type Issuer = func(ctx context.Context, u api.User, namespace, name string, obj runtime.Object) (runtime.Object, error)

// GuardTokens returns an issuer that runs the admission plugins for tokens before issue. A kubelet gets tokens only for
// pods on its node, and a namespace that is being deleted gets none.
func GuardTokens(objects api.CurrentObjects, authorizer api.Authorizer, issue Issuer) Issuer {
	lifecycle, nodes := &namespaceLifecycle{objects: objects}, &nodeRestriction{objects, authorizer}
	return func(ctx context.Context, u api.User, namespace, name string, obj runtime.Object) (runtime.Object, error) {
		a := &api.Admission{
			Operation: "CREATE", User: u, Namespace: namespace, Name: name, Object: obj,
			Kind:     authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"),
			Resource: schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}, Subresource: "token",
		}
		if err := lifecycle.Admit(ctx, a); err != nil {
			return nil, err
		}
		if err := nodes.Validate(ctx, a); err != nil {
			return nil, err
		}
		return issue(ctx, u, namespace, name, obj)
	}
}
