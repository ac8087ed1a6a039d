package authz

import (
	"context"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/api"
)

// Proves S12.
//
//style:long a table of changes, with the roles that they change
func TestRoleChangesNeedAllRulesOfTheRole(t *testing.T) {
	strong := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "strong", Labels: map[string]string{}},
		Rules:      clusterAdminRules,
	}
	weak := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "weak"},
		Rules:      []rbacv1.PolicyRule{newRule("", "pods", "get")},
	}
	gathers := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "gathers"},
		AggregationRule: &rbacv1.AggregationRule{
			ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"to": "gathers"}}}},
	}
	secrets := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "secrets"},
		Rules:      []rbacv1.PolicyRule{newRule("", "nodes", "*")},
	}
	bound := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "bound"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "strong"},
	}

	o := testObjects()
	for _, obj := range []runtime.Object{strong, weak, gathers, secrets, bound,
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "editor"}, Rules: []rbacv1.PolicyRule{
			newRule(rbacv1.GroupName, "clusterroles roles clusterrolebindings", "create update patch"),
			newRule("", "pods", "get")}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "escalator"},
			Rules: []rbacv1.PolicyRule{withNames(newRule(rbacv1.GroupName, "clusterroles", "escalate"), "strong",
				"gathers")}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "editor"},
			RoleRef:  rbacv1.RoleRef{Kind: "ClusterRole", Name: "editor"},
			Subjects: []rbacv1.Subject{userSubject("editor"), userSubject("escalator")}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "escalator"},
			RoleRef:  rbacv1.RoleRef{Kind: "ClusterRole", Name: "escalator"},
			Subjects: []rbacv1.Subject{userSubject("escalator")}},
	} {
		o.Put(obj)
	}
	authorizer, err := New([]string{"RBAC"}, o)
	if err != nil {
		t.Fatal(err)
	}
	plugin := NewEscalation(o, authorizer)
	const lacks, notAll = "not currently held", "must have cluster-admin privileges to use the aggregationRule"
	labelled := func(m *metav1.ObjectMeta) {
		m.Labels = map[string]string{"rbac.authorization.k8s.io/aggregate-to-view": "true"}
	}
	released := func(m *metav1.ObjectMeta) {
		m.Finalizers, m.OwnerReferences = []string{"a/b"}, []metav1.OwnerReference{{Name: "x"}}
	}
	for name, c := range map[string]struct {
		user  string
		old   runtime.Object
		to    func(obj runtime.Object)
		error string
	}{
		"a label on a strong role": {"editor", strong,
			func(o runtime.Object) { labelled(&o.(*rbacv1.ClusterRole).ObjectMeta) }, lacks},
		"an annotation on a strong role": {"editor", strong,
			func(o runtime.Object) { o.(*rbacv1.ClusterRole).Annotations = map[string]string{"a": "b"} }, lacks},
		"fewer rules of a strong role": {"editor", strong,
			func(o runtime.Object) { o.(*rbacv1.ClusterRole).Rules = clusterAdminRules[:1] }, lacks},
		"a strong role's owner": {"editor", strong,
			func(o runtime.Object) { released(&o.(*rbacv1.ClusterRole).ObjectMeta) }, ""},
		"a strong role unchanged": {"editor", strong, func(runtime.Object) {}, ""},
		"a label on a role that one has": {"editor", weak,
			func(o runtime.Object) { labelled(&o.(*rbacv1.ClusterRole).ObjectMeta) }, ""},
		"a weak role comes to aggregate": {"editor", weak,
			func(o runtime.Object) { o.(*rbacv1.ClusterRole).AggregationRule = gathers.AggregationRule }, notAll},
		"other selectors of an aggregate": {"editor", gathers, func(o runtime.Object) {
			o.(*rbacv1.ClusterRole).AggregationRule.ClusterRoleSelectors[0].MatchLabels["to"] = "all"
		}, notAll},
		"an aggregate ceases to be one": {"editor", gathers,
			func(o runtime.Object) { o.(*rbacv1.ClusterRole).AggregationRule = nil }, notAll},
		"a label on an aggregate": {"editor", gathers,
			func(o runtime.Object) { labelled(&o.(*rbacv1.ClusterRole).ObjectMeta) }, notAll},
		"other selectors, with escalate": {"escalator", gathers, func(o runtime.Object) {
			o.(*rbacv1.ClusterRole).AggregationRule.ClusterRoleSelectors[0].MatchLabels["to"] = "all"
		}, ""},
		"a label, with escalate": {"escalator", strong,
			func(o runtime.Object) { labelled(&o.(*rbacv1.ClusterRole).ObjectMeta) }, ""},
		"a namespace's role is relabelled": {"editor", secrets,
			func(o runtime.Object) { labelled(&o.(*rbacv1.Role).ObjectMeta) }, lacks},
		"a namespace's role is let go": {"editor", secrets,
			func(o runtime.Object) { released(&o.(*rbacv1.Role).ObjectMeta) }, ""},
		"another subject": {"editor", bound,
			func(o runtime.Object) {
				o.(*rbacv1.ClusterRoleBinding).Subjects = []rbacv1.Subject{userSubject("editor")}
			},
			lacks},
		"a binding is let go": {"editor", bound,
			func(o runtime.Object) { released(&o.(*rbacv1.ClusterRoleBinding).ObjectMeta) }, ""},
	} {
		a := &api.Admission{
			Operation: "UPDATE",
			User:      api.User{Name: c.user},
			Old:       c.old,
			Object:    c.old.DeepCopyObject(),
		}
		c.to(a.Object)
		switch c.old.(type) {
		case *rbacv1.ClusterRole:
			a.Resource = rbacv1.SchemeGroupVersion.WithResource("clusterroles")
		case *rbacv1.Role:
			a.Resource, a.Namespace = rbacv1.SchemeGroupVersion.WithResource("roles"), "shop"
		case *rbacv1.ClusterRoleBinding:
			a.Resource = rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings")
		}
		err := plugin.Validate(context.Background(), a)
		if (err == nil) != (c.error == "") || err != nil && !strings.Contains(err.Error(), c.error) {
			t.Errorf("%s: %v, want %q", name, err, c.error)
		}
	}
}
