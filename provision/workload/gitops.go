package workload

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"clusterctl/daemons/config/gitsource"
	"clusterctl/hcl/config"
	"clusterctl/provision/state"
)

// gitOpsGroup is the group of the controllers' users, one for each control-plane machine.
const gitOpsGroup = gitsource.User

// gitOpsObjects returns what the GitOps controller needs: the definition of GitSources, the controller's rights, and
// the service account of the cluster's own sources.
func gitOpsObjects(c *config.Cluster) ([]any, error) {
	if !c.NeedsGitOps() {
		return nil, nil
	}
	definition := map[string]any{}
	if err := yaml.Unmarshal(gitsource.Definition, &definition); err != nil {
		return nil, fmt.Errorf("read the definition of GitSources: %w", err)
	}
	rbac := metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String()}
	typed := func(kind string) metav1.TypeMeta { rbac.Kind = kind; return rbac }
	group := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: gitOpsGroup}}
	list := []any{
		definition,
		&rbacv1.ClusterRole{TypeMeta: typed("ClusterRole"), ObjectMeta: metav1.ObjectMeta{Name: gitsource.User},
			Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{gitsource.Group}, Resources: []string{gitsource.Resource},
					Verbs: []string{"get", "list", "watch", "patch"}},
				{APIGroups: []string{gitsource.Group}, Resources: []string{gitsource.Resource + "/status"},
					Verbs: []string{"patch"}},
				{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
				{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"impersonate"}},
				{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
			}},
		&rbacv1.ClusterRoleBinding{TypeMeta: typed("ClusterRoleBinding"),
			ObjectMeta: metav1.ObjectMeta{Name: gitsource.User}, Subjects: group,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: gitsource.User}},
		&rbacv1.Role{TypeMeta: typed("Role"),
			ObjectMeta: metav1.ObjectMeta{Name: gitsource.User, Namespace: metav1.NamespaceSystem},
			Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create"}},
				{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"},
					ResourceNames: []string{gitsource.Lease}, Verbs: []string{"get", "update"}},
			}},
		&rbacv1.RoleBinding{TypeMeta: typed("RoleBinding"),
			ObjectMeta: metav1.ObjectMeta{Name: gitsource.User, Namespace: metav1.NamespaceSystem}, Subjects: group,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: gitsource.User}},
	}
	if c.ReceiverPort() != 0 {
		list = append(list, gitOpsReceiver(c, typed)...)
	}
	return append(list, gitOpsAccount(typed)...), nil
}

// gitOpsReceiver returns a Service without a selector, and the right of the active controller to add itself as its
// endpoint.
func gitOpsReceiver(c *config.Cluster, typed func(kind string) metav1.TypeMeta) []any {
	const name = gitsource.ReceiverService
	slices := []string{"endpointslices"}
	groups := []string{discoveryv1.GroupName}
	return []any{
		&corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceSystem},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP,
				Ports: []corev1.ServicePort{{Name: "https", Port: 443, Protocol: corev1.ProtocolTCP,
					TargetPort: intstr.FromInt(c.ReceiverPort())}}}},
		&rbacv1.Role{TypeMeta: typed("Role"),
			ObjectMeta: metav1.ObjectMeta{Name: gitsource.User + ":receiver", Namespace: metav1.NamespaceSystem},
			Rules: []rbacv1.PolicyRule{
				{APIGroups: groups, Resources: slices, Verbs: []string{"create"}},
				{APIGroups: groups, Resources: slices, ResourceNames: []string{name, name + "-ipv6"},
					Verbs: []string{"patch", "delete"}},
			}},
		&rbacv1.RoleBinding{TypeMeta: typed("RoleBinding"),
			ObjectMeta: metav1.ObjectMeta{Name: gitsource.User + ":receiver", Namespace: metav1.NamespaceSystem},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: gitOpsGroup}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role",
				Name: gitsource.User + ":receiver"}},
	}
}

// gitOpsAccount returns the service account of sources in kube-system that name none. It may do everything, because
// such a source may contain anything. Sources in other namespaces never get it.
func gitOpsAccount(typed func(kind string) metav1.TypeMeta) []any {
	return []any{
		&corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
			ObjectMeta: metav1.ObjectMeta{Name: gitsource.Account, Namespace: gitsource.Namespace}},
		&rbacv1.ClusterRoleBinding{TypeMeta: typed("ClusterRoleBinding"),
			ObjectMeta: metav1.ObjectMeta{Name: gitsource.Namespace + ":" + gitsource.Account},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: gitsource.Namespace,
				Name: gitsource.Account}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}},
	}
}

// endingSources returns the GitSources among deleted objects that still exist. They stay in the state, so that their
// controller stays until it has deleted their objects.
func (l *Live) endingSources(ctx context.Context, deleted []state.Object) (ending []state.Object) {
	for _, o := range deleted {
		if o.APIVersion != gitsource.APIVersion || o.Kind != gitsource.Kind {
			continue
		}
		// An error proves nothing about the object.
		if live, err := l.get(ctx, o); err != nil || live != nil {
			ending = append(ending, o)
		}
	}
	return ending
}
