package clusterrole

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAggregatedRolesHaveEachSelectedRuleOnce(t *testing.T) {
	role := func(name, label string, verbs ...string) *rbacv1.ClusterRole {
		r := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"to": label}}}
		for _, v := range verbs {
			r.Rules = append(r.Rules, rbacv1.PolicyRule{Verbs: []string{v}, Resources: []string{"pods"}})
		}
		return r
	}
	whole := role("whole", "x", "old")
	whole.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{
		{MatchLabels: map[string]string{"to": "x"}}, {MatchLabels: map[string]string{"to": "y"}}}}
	rules, err := gatherRules(
		whole,
		[]*rbacv1.ClusterRole{
			role("c", "y", "get", "watch"),
			role("b", "x", "list"),
			whole,
			role("a", "x", "get"),
			role("d", "z", "delete"),
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	var verbs string
	for _, r := range rules {
		verbs += r.Verbs[0] + " "
	}
	if verbs != "get list watch " {
		t.Errorf("verbs are %s", verbs)
	}
	whole.AggregationRule.ClusterRoleSelectors[0].MatchExpressions = []metav1.LabelSelectorRequirement{
		{Key: "to", Operator: "Is"},
	}
	if _, err := gatherRules(whole, nil); err == nil {
		t.Error("took a selector that cannot be read")
	}
}
