package authz

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/auth/rbac/validation"
	"pgregory.net/rapid"

	"clusterctl/daemons/api"
)

// rulesOf draws rules from few values, so that held and demanded rules often overlap.
func rulesOf(maximum int) *rapid.Generator[[]rbacv1.PolicyRule] {
	some := func(t *rapid.T, label string, minimum int, values ...string) []string {
		return rapid.SliceOfN(rapid.SampledFrom(values), minimum, 4).Draw(t, label)
	}
	return rapid.Custom(func(t *rapid.T) []rbacv1.PolicyRule {
		var list []rbacv1.PolicyRule
		for range rapid.IntRange(0, maximum).Draw(t, "rules") {
			r := rbacv1.PolicyRule{Verbs: some(t, "verbs", 0, "get", "list", "create", "*")}
			if rapid.Bool().Draw(t, "path") {
				r.NonResourceURLs = some(t, "paths", 0, "/a", "/a/*", "/a/b", "/a**", "*", "/")
			}
			if rapid.Bool().Draw(t, "resource") {
				r.APIGroups = some(t, "groups", 0, "", "apps", "batch", "*")
				r.Resources = some(t, "resources", 0, "pods", "pods/log", "jobs", "jobs/scale", "*/scale", "*/log", "*",
					"*/")
			}
			if rapid.IntRange(0, 2).Draw(t, "named") == 0 {
				r.ResourceNames = some(t, "names", 1, "a", "b", "c")
			}
			list = append(list, r)
		}
		return list
	})
}

// TestRuleComparisonEqualsGrantByGrant compares products of rules with a comparison grant by grant.
// Proves S12.
func TestRuleComparisonEqualsGrantByGrant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		own, demanded := rulesOf(5).Draw(t, "own"), rulesOf(3).Draw(t, "demanded")
		missing, err := newHeld(own).missing(demanded)
		if err != nil {
			t.Fatal(err)
		}
		covered, uncovered := validation.Covers(own, demanded)
		if covered != (len(missing) == 0) {
			t.Fatalf("covered: %v; missing %v, by grants %v", covered, missing, uncovered)
		}
		if len(missing) >= maxMissing {
			return
		}
		grants := func(rules []rbacv1.PolicyRule) map[string]bool {
			set := map[string]bool{}
			for _, r := range rules {
				for _, one := range validation.BreakdownRule(r) {
					set[formatRule(one)] = true
				}
			}
			return set
		}
		if got, want := grants(missing), grants(uncovered); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("missing %v, want %v", got, want)
		}
	})
}

// TestRolesWithManyCombinationsAreCheap writes roles of a few kilobytes that grant billions of combinations.
// Proves S12.
func TestRolesWithManyCombinationsAreCheap(t *testing.T) {
	list := func(prefix string, n int) (values []string) {
		for i := range n {
			values = append(values, fmt.Sprintf("%s%d", prefix, i))
		}
		return values
	}
	bomb := rbacv1.PolicyRule{
		APIGroups:     list("g", 400),
		Resources:     list("r", 400),
		Verbs:         list("v", 400),
		ResourceNames: list("n", 400),
	}
	holds := func(rules ...rbacv1.PolicyRule) []rbacv1.PolicyRule { return rules }
	var scattered, lattice []rbacv1.PolicyRule
	for i := range 400 {
		one := func(prefix string) []string { return []string{fmt.Sprintf("%s%d", prefix, i)} }
		scattered = append(scattered, rbacv1.PolicyRule{APIGroups: one("g"), Resources: one("r"), Verbs: one("v")})
		lattice = append(lattice,
			rbacv1.PolicyRule{APIGroups: one("g"), Resources: []string{"*"}, Verbs: list("v", 200)},
			rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: one("r"), Verbs: list("v", 400)[200:]})
	}
	for name, c := range map[string]struct {
		own  []rbacv1.PolicyRule
		want string // part of the error; empty if the rules are covered
	}{
		"nothing is held":    {nil, "not currently held"},
		"everything is held": {clusterAdminRules, ""},
		"the same is held":   {holds(bomb), ""},
		"half of the verbs": {holds(rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"},
			Verbs: list("v", 200)}), "not currently held"},
		"two halves": {holds(rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"},
			Verbs: list("v", 200)},
			rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: list("v", 400)[200:]}), ""},
		"scattered grants":          {scattered, "not currently held"},
		"more classes than allowed": {lattice, "too many combinations"},
	} {
		t.Run(name, func(t *testing.T) {
			o := testObjects()
			o.Put(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "own"}, Rules: c.own})
			o.Put(
				&rbacv1.ClusterRoleBinding{
					ObjectMeta: metav1.ObjectMeta{Name: "own"},
					RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: "own"},
					Subjects:   []rbacv1.Subject{userSubject("jane")},
				},
			)
			role := &rbacv1.Role{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "bomb"},
				Rules:      []rbacv1.PolicyRule{bomb},
			}
			a := &api.Admission{
				Operation: "CREATE",
				User:      api.User{Name: "jane"},
				Object:    role,
				Namespace: "shop",
				Resource:  rbacv1.SchemeGroupVersion.WithResource("roles"),
			}
			plugin := NewEscalation(o, refuseAll{})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := plugin.Validate(t.Context(), a)
			runtime.ReadMemStats(&after)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %.300q, want %q", err, c.want)
			}
			if err != nil && len(err.Error()) > 16<<10 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			if took := after.TotalAlloc - before.TotalAlloc; took > 8<<20 {
				t.Errorf("%d bytes were allocated", took)
			}
		})
	}
	if _, err := newHeld(lattice).missing([]rbacv1.PolicyRule{bomb}); !errors.Is(err, errTooComplex) {
		t.Errorf("more classes than allowed: %v", err)
	}
}

// refuseAll is an authorizer that allows nothing.
type refuseAll struct{}

func (refuseAll) Authorize(context.Context, api.User, api.Request) (api.Decision, string, error) {
	return api.NoOpinion, "", nil
}
