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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"clusterctl/daemons/config"
)

// AdmitReplicas lets the users that daemons are on one machine do what the former ones were let do, as long as both are there. Else
// API servers of a former release let them do nothing, and a machine that goes back to such a release, whose daemons have the new
// credentials, has no ingress and no names. DropFormerRights ends it. The group of the users has the name of the former user.
func (l *Live) AdmitReplicas(ctx context.Context) error {
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
			subjects, _, _ := unstructured.NestedSlice(o.Object, "subjects")
			if slices.ContainsFunc(subjects, func(s any) bool {
				m, ok := s.(map[string]any)
				return ok && m["kind"] == rbacv1.GroupKind && m["name"] == name
			}) {
				continue
			}
			group := map[string]any{"apiGroup": rbacv1.GroupName, "kind": rbacv1.GroupKind, "name": name}
			patch, err := json.Marshal(map[string]any{"subjects": append(subjects, group)})
			if err != nil {
				return err
			}
			if _, err := bindings.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: Manager}); err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("write the binding %s: %w", name, err)
			}
		}
	}
	return nil
}
