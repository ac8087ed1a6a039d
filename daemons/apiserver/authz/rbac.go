package authz

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
)

var (
	rolesGR               = schema.GroupResource{Group: rbacv1.GroupName, Resource: "roles"}
	clusterRolesGR        = schema.GroupResource{Group: rbacv1.GroupName, Resource: "clusterroles"}
	roleBindingsGR        = schema.GroupResource{Group: rbacv1.GroupName, Resource: "rolebindings"}
	clusterRoleBindingsGR = schema.GroupResource{Group: rbacv1.GroupName, Resource: "clusterrolebindings"}
)

// RBAC allows what the roles grant that are bound to the user or to a group of the user. It has an index by subject,
// which is rebuilt after a role or a binding has changed. Otherwise a decision costs only a look at the user's own
// bindings.
type RBAC struct {
	objects api.Objects
	current atomic.Pointer[subjectIndex]
	mu      sync.Mutex // serializes rebuilding current
}

// NewRBAC returns an authorizer over the roles and bindings in objects.
func NewRBAC(objects api.Objects) *RBAC { return &RBAC{objects: objects} }

// grant is one binding for one of its subjects.
type grant struct {
	namespace string // empty for a ClusterRoleBinding
	rules     []rbacv1.PolicyRule
	binding   string // name of the binding, for the reason
	role      rbacv1.RoleRef
	subject   rbacv1.Subject
}

type subjectIndex struct {
	revisions [4]int64
	users     map[string][]grant
	groups    map[string][]grant
}

// Authorize returns Allow or NoOpinion, never Deny, because another authorizer may allow the request.
func (a *RBAC) Authorize(_ context.Context, u api.User, r api.Request) (api.Decision, string, error) {
	d, reason, _ := a.TryAuthorize(u, r)
	return d, reason, nil
}

// TryAuthorize is Authorize. It never waits, because it reads only from memory.
func (a *RBAC) TryAuthorize(u api.User, r api.Request) (api.Decision, string, bool) {
	for g := range a.grants(u) {
		if g.namespace != "" && (!r.Resource || g.namespace != r.Namespace) {
			continue
		}
		for i := range g.rules {
			if grantsRequest(&g.rules[i], &r) {
				return api.Allow, g.reason(), false
			}
		}
	}
	return api.NoOpinion, "", false
}

// reason returns the reason for allowing a request. It runs for every allowed request, so it does not use fmt.
func (g *grant) reason() string {
	b := append(make([]byte, 0, 256), "RBAC: allowed by "...)
	if g.namespace != "" {
		b = strconv.AppendQuote(append(b, "RoleBinding "...), g.binding+"/"+g.namespace)
	} else {
		b = strconv.AppendQuote(append(b, "ClusterRoleBinding "...), g.binding)
	}
	b = append(append(append(b, " of "...), g.role.Kind...), ' ')
	b = append(strconv.AppendQuote(b, g.role.Name), " to "...)
	subject := g.subject.Name
	if g.subject.Kind == rbacv1.ServiceAccountKind {
		subject += "/" + g.subject.Namespace
	}
	return string(strconv.AppendQuote(append(append(b, g.subject.Kind...), ' '), subject))
}

// grants yields the grants of the user and of the user's groups.
func (a *RBAC) grants(u api.User) func(yield func(*grant) bool) {
	x := a.index()
	return func(yield func(*grant) bool) {
		list := x.users[u.Name]
		for i := range list {
			if !yield(&list[i]) {
				return
			}
		}
		for _, group := range u.Groups {
			list := x.groups[group]
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

// Rules returns what the user may do in a namespace, cluster-wide grants included.
func (a *RBAC) Rules(u api.User, namespace string) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	if u.InGroup(api.GroupMasters) {
		rules = append(rules,
			rbacv1.PolicyRule{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
			rbacv1.PolicyRule{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}})
	}
	for g := range a.grants(u) {
		if g.namespace == "" || g.namespace == namespace {
			rules = append(rules, g.rules...)
		}
	}
	return rules
}

// RoleRules returns the rules of the role that a binding in namespace refers to.
func (a *RBAC) RoleRules(ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, bool) {
	switch ref.Kind {
	case "Role":
		if obj, ok := a.objects.Get(rolesGR, namespace, ref.Name); ok {
			return obj.(*rbacv1.Role).Rules, true
		}
	case "ClusterRole":
		if obj, ok := a.objects.Get(clusterRolesGR, "", ref.Name); ok {
			return a.clusterRules(obj.(*rbacv1.ClusterRole), nil), true
		}
	}
	return nil, false
}

func (a *RBAC) revisions() [4]int64 {
	return [4]int64{
		a.objects.Revision(rolesGR), a.objects.Revision(clusterRolesGR),
		a.objects.Revision(roleBindingsGR), a.objects.Revision(clusterRoleBindingsGR),
	}
}

func (a *RBAC) index() *subjectIndex {
	revisions := a.revisions()
	if x := a.current.Load(); x != nil && x.revisions == revisions {
		return x
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	// Read the revisions before the objects, so that a change in between causes another rebuild.
	revisions = a.revisions()
	if x := a.current.Load(); x != nil && x.revisions == revisions {
		return x
	}
	x := a.buildIndex()
	x.revisions = revisions
	a.current.Store(x)
	return x
}

func (a *RBAC) buildIndex() *subjectIndex {
	x := &subjectIndex{users: map[string][]grant{}, groups: map[string][]grant{}}
	clusterRoles := map[string]*rbacv1.ClusterRole{}
	for _, obj := range a.objects.List(clusterRolesGR, "") {
		role := obj.(*rbacv1.ClusterRole)
		clusterRoles[role.Name] = role
	}
	whole := map[string][]rbacv1.PolicyRule{}
	clusterRules := func(name string) []rbacv1.PolicyRule {
		rules, done := whole[name]
		if role := clusterRoles[name]; !done && role != nil {
			rules = a.clusterRules(role, clusterRoles)
			whole[name] = rules
		}
		return rules
	}
	for _, obj := range a.objects.List(clusterRoleBindingsGR, "") {
		b := obj.(*rbacv1.ClusterRoleBinding)
		if b.RoleRef.Kind == "ClusterRole" {
			x.add(grant{binding: b.Name, role: b.RoleRef, rules: clusterRules(b.RoleRef.Name)}, b.Subjects)
		}
	}
	roleRules := map[string][]rbacv1.PolicyRule{}
	for _, obj := range a.objects.List(rolesGR, "") {
		role := obj.(*rbacv1.Role)
		roleRules[role.Namespace+"/"+role.Name] = role.Rules
	}
	for _, obj := range a.objects.List(roleBindingsGR, "") {
		b := obj.(*rbacv1.RoleBinding)
		g := grant{binding: b.Name, namespace: b.Namespace, role: b.RoleRef}
		if b.RoleRef.Kind == "ClusterRole" {
			g.rules = clusterRules(b.RoleRef.Name)
		} else {
			g.rules = roleRules[b.Namespace+"/"+b.RoleRef.Name]
		}
		x.add(g, b.Subjects)
	}
	return x
}

// add adds a grant under each of its subjects.
func (x *subjectIndex) add(g grant, subjects []rbacv1.Subject) {
	if len(g.rules) == 0 {
		return
	}
	for _, s := range subjects {
		g.subject = s
		switch s.Kind {
		case rbacv1.UserKind:
			x.users[s.Name] = append(x.users[s.Name], g)
		case rbacv1.GroupKind:
			x.groups[s.Name] = append(x.groups[s.Name], g)
		case rbacv1.ServiceAccountKind:
			if g.subject.Namespace == "" {
				g.subject.Namespace = g.namespace
			}
			if g.subject.Namespace != "" {
				name := "system:serviceaccount:" + g.subject.Namespace + ":" + s.Name
				x.users[name] = append(x.users[name], g)
			}
		}
	}
}

// clusterRules returns a cluster role's rules. It computes those of an aggregated role from the selected roles, so that
// they are always current.
func (a *RBAC) clusterRules(role *rbacv1.ClusterRole, all map[string]*rbacv1.ClusterRole) []rbacv1.PolicyRule {
	if role.AggregationRule == nil {
		return role.Rules
	}
	if all == nil {
		all = map[string]*rbacv1.ClusterRole{}
		for _, obj := range a.objects.List(clusterRolesGR, "") {
			r := obj.(*rbacv1.ClusterRole)
			all[r.Name] = r
		}
	}
	return aggregateRules(role, all, []string{role.Name})
}

// aggregateRules returns the rules of the selected roles, recursively. It skips a role that is on the path already.
func aggregateRules(role *rbacv1.ClusterRole, all map[string]*rbacv1.ClusterRole, path []string) []rbacv1.PolicyRule {
	if role.AggregationRule == nil {
		return role.Rules
	}
	var rules []rbacv1.PolicyRule
	seen := map[string]bool{}
	for i := range role.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[i])
		if err != nil || selector.Empty() {
			continue
		}
		var names []string
		for name, other := range all {
			if !seen[name] && !slices.Contains(path, name) && selector.Matches(labels.Set(other.Labels)) {
				names = append(names, name)
			}
		}
		slices.SortFunc(names, strings.Compare)
		for _, name := range names {
			seen[name] = true
			rules = append(rules, aggregateRules(all[name], all, append(slices.Clip(path), name))...)
		}
	}
	return rules
}
