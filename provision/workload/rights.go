package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
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

// AdmitReplicas adds the groups of the daemons' users, which differ from machine to machine, to the bindings of
// config.FormerUsers. API servers of the former release have no other rights for these users. A machine that is rolled
// back runs daemons of the former release with the new credentials. DropFormerRights deletes the bindings. A daemon's
// group and its former user have the same name.
func (l rightsClient) AdmitReplicas(ctx context.Context) error {
	for _, name := range config.FormerUsers {
		for _, bindings := range l.bindings() {
			err := changeSubjects(ctx, bindings, name, func(o *unstructured.Unstructured, subjects []any) []any {
				if !isBootstrapDefault(o) || slices.ContainsFunc(subjects, isSubject(rbacv1.GroupKind, name)) {
					return subjects
				}
				group := map[string]any{"apiGroup": rbacv1.GroupName, "kind": rbacv1.GroupKind, "name": name}
				return append(subjects, group)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// DropFormerRights deletes the bindings of config.FormerUsers, which daemons of former releases shared on all machines.
// The bindings allow these users to read all Secrets and to change all leases in kube-system. They must go because a
// certificate that was stolen before its renewal is not in any revocation list. Bindings of the same names that an API
// server did not create stay.
func (l rightsClient) DropFormerRights(ctx context.Context) error {
	err := changeSubjects(ctx, l.dynamic.Resource(clusterRoleBindings), gatewayAddresses,
		func(_ *unstructured.Unstructured, subjects []any) []any {
			return slices.DeleteFunc(subjects, isSubject(rbacv1.UserKind, ingressUsers))
		})
	if err != nil {
		return err
	}
	for _, name := range config.FormerUsers {
		for _, bindings := range l.bindings() {
			o, err := bindings.Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) || err == nil && !isBootstrapDefault(o) {
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

// bindings returns the clients of the resources in which a former user has a binding of its name.
func (l rightsClient) bindings() []dynamic.ResourceInterface {
	return []dynamic.ResourceInterface{
		l.dynamic.Resource(clusterRoleBindings), l.dynamic.Resource(roleBindings).Namespace(metav1.NamespaceSystem),
	}
}

// changeSubjects replaces the subjects of a binding with those that change returns. A binding that does not exist is
// not created. If another client changes the binding at the same time, the error has the reason Conflict.
func changeSubjects(ctx context.Context, bindings dynamic.ResourceInterface, name string,
	change func(o *unstructured.Unstructured, subjects []any) []any) error {
	o, err := bindings.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the binding %s: %w", name, err)
	}
	before, _, _ := unstructured.NestedSlice(o.Object, "subjects") // NestedSlice returns a copy
	now := change(o, slices.Clone(before))
	if len(now) == len(before) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": o.GetResourceVersion()}, "subjects": now,
	})
	if err != nil {
		return fmt.Errorf("encode the subjects of the binding %s: %w", name, err)
	}
	_, err = bindings.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: Manager})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write the binding %s: %w", name, err)
	}
	return nil
}

// isSubject returns a function that reports whether an entry of subjects has a kind and a name.
func isSubject(kind, name string) func(subject any) bool {
	return func(subject any) bool {
		m, ok := subject.(map[string]any)
		return ok && m["kind"] == kind && m["name"] == name
	}
}

// metricsService is the name of the APIService of the metrics API. metricsServer is the value of its managed-by label
// if the cluster's own metrics server registered it.
const metricsService, metricsServer = "v1beta1.metrics.k8s.io", "metrics-server"

// dropFormerBundle removes the caBundle that metrics servers of former releases set for API servers of those releases.
// While it is there, the manifest of another metrics server cannot be applied: it sets insecureSkipTLSVerify.
func (l rightsClient) dropFormerBundle(ctx context.Context) error {
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
	_, err = l.dynamic.Resource(apiServices).Patch(ctx, metricsService, types.MergePatchType,
		[]byte(`{"spec":{"caBundle":null}}`), metav1.PatchOptions{FieldManager: Manager})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write the API service %s: %w", metricsService, err)
	}
	return nil
}

// isBootstrapDefault reports whether an RBAC object is one of the defaults that an API server creates.
func isBootstrapDefault(o *unstructured.Unstructured) bool {
	return o.GetLabels()["kubernetes.io/bootstrapping"] == "rbac-defaults"
}
