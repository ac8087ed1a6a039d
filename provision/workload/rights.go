package workload

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"clusterctl/daemons/config"
)

var (
	clusterRoleBindings = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1",
		Resource: "clusterrolebindings"}
	roleBindings = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1",
		Resource: "rolebindings"}
	apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
)

// DropFormerRights deletes the bindings of config.FormerUsers, which daemons of former releases shared on all machines.
// The bindings allow these users to read all Secrets and to change all leases in kube-system. They must go because a
// certificate that was stolen before its renewal is not in any revocation list. Bindings of the same names that an API
// server did not create stay.
func (l *Live) DropFormerRights(ctx context.Context) error {
	if err := l.dropFormerSubject(ctx); err != nil {
		return err
	}
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
	return l.dropFormerBundle(ctx)
}

// metricsService is how the API's metrics are registered, and metricsServer by whom.
const metricsService, metricsServer = "v1beta1.metrics.k8s.io", "metrics-server"

// dropFormerBundle takes the authority away by which API servers of former releases know the metrics server. With it another
// one's manifest, which has insecureSkipTLSVerify, cannot be applied.
func (l *Live) dropFormerBundle(ctx context.Context) error {
	o, err := l.dynamic.Resource(apiServices).Get(ctx, metricsService, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the API service %s: %w", metricsService, err)
	}
	bundle, _, _ := unstructured.NestedString(o.Object, "spec", "caBundle")
	if bundle == "" || o.GetLabels()["app.kubernetes.io/managed-by"] != metricsServer {
		return nil
	}
	_, err = l.dynamic.Resource(apiServices).Patch(ctx, metricsService, types.MergePatchType, []byte(`{"spec":{"caBundle":null}}`),
		metav1.PatchOptions{FieldManager: Manager})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write the API service %s: %w", metricsService, err)
	}
	return nil
}

// ofBootstrap reports whether an RBAC object is one of the defaults that an API server creates.
func ofBootstrap(o *unstructured.Unstructured) bool {
	return o.GetLabels()["kubernetes.io/bootstrapping"] == "rbac-defaults"
}
