package workload

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"clusterctl/daemons/config"
)

var (
	clusterRoleBindings = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1",
		Resource: "clusterrolebindings"}
	roleBindings = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1",
		Resource: "rolebindings"}
)

// DropFormerRights deletes the bindings of config.FormerUsers, which daemons of former releases shared on all machines.
// The bindings allow these users to read all Secrets and to change all leases in kube-system. They must go because a
// certificate that was stolen before its renewal is not in any revocation list. Bindings of the same names that an API
// server did not create stay.
func (l *Live) DropFormerRights(ctx context.Context) error {
	for _, name := range config.FormerUsers {
		for _, bindings := range []dynamic.ResourceInterface{
			l.dynamic.Resource(clusterRoleBindings), l.dynamic.Resource(roleBindings).Namespace(metav1.NamespaceSystem),
		} {
			o, err := bindings.Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) || err == nil && !ofBootstrap(o) {
				continue
			}
			if err != nil {
				return fmt.Errorf("read the binding %s: %w", name, err)
			}
			uid := o.GetUID()
			err = bindings.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("delete the binding %s: %w", name, err)
			}
		}
	}
	return nil
}

// ofBootstrap reports whether an RBAC object is one of the defaults that an API server creates.
func ofBootstrap(o *unstructured.Unstructured) bool {
	return o.GetLabels()["kubernetes.io/bootstrapping"] == "rbac-defaults"
}
