package authz

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
)

// Escalation is a validating admission plugin that keeps users from granting rights that they do not have. Writing a
// role requires all its rights, or the verb escalate on it. Writing a binding requires all rights of its role, or the
// verb bind on the role.
type Escalation struct {
	rbac       *RBAC
	authorizer api.Authorizer
}

// NewEscalation returns the plugin. authorizer authorizes the verbs escalate and bind.
func NewEscalation(objects api.Objects, authorizer api.Authorizer) *Escalation {
	return &Escalation{rbac: NewRBAC(objects), authorizer: authorizer}
}

// Validate refuses a write of a role or binding that would grant too much.
func (e *Escalation) Validate(ctx context.Context, a *api.Admission) error {
	if a.Resource.Group != rbacv1.GroupName || a.Subresource != "" ||
		a.Operation != "CREATE" && a.Operation != "UPDATE" {
		return nil
	}
	if a.User.InGroup(api.GroupMasters) {
		return nil
	}
	if finishesDeletion(a) {
		return nil
	}
	switch obj := a.Object.(type) {
	case *rbacv1.Role:
		return e.checkRole(ctx, a, obj.Name, obj.Rules)
	case *rbacv1.ClusterRole:
		return e.checkClusterRole(ctx, a, obj)
	case *rbacv1.RoleBinding:
		return e.checkBinding(ctx, a, obj.Name, obj.RoleRef)
	case *rbacv1.ClusterRoleBinding:
		return e.checkBinding(ctx, a, obj.Name, obj.RoleRef)
	}
	return nil
}

func groupResource(a *api.Admission) schema.GroupResource { return a.Resource.GroupResource() }

// finishesDeletion reports whether an update changes only finalizers and owners, which the garbage collector must be
// able to change.
func finishesDeletion(a *api.Admission) bool {
	if a.Operation != "UPDATE" || a.Old == nil {
		return false
	}
	after := a.Object.DeepCopyObject()
	m, err := meta.Accessor(after)
	if err != nil {
		return false
	}
	before, err := meta.Accessor(a.Old)
	if err != nil {
		return false
	}
	m.SetOwnerReferences(before.GetOwnerReferences())
	m.SetFinalizers(before.GetFinalizers())
	m.SetManagedFields(before.GetManagedFields())
	return equality.Semantic.DeepEqual(after, a.Old)
}

// clusterAdminRules holds the rules of cluster-admin.
var clusterAdminRules = []rbacv1.PolicyRule{
	{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
	{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}},
}

// checkClusterRole requires all rights of a role for any change of it, since its labels grant as well. A role that gets
// the label of an aggregated role adds its rules to that role.
func (e *Escalation) checkClusterRole(ctx context.Context, a *api.Admission, r *rbacv1.ClusterRole) error {
	if e.canEscalate(ctx, a, r.Name) {
		return nil
	}
	if err := e.checkCovered(a, r.Name, r.Rules); err != nil {
		return err
	}
	old, _ := a.Old.(*rbacv1.ClusterRole)
	if !isAggregating(r) && !isAggregating(old) {
		return nil
	}
	// The aggregated role may grant any rule of roles that are labelled later.
	if e.checkCovered(a, r.Name, clusterAdminRules) != nil {
		return apierrors.NewForbidden(groupResource(a), r.Name, errors.New(
			"must have cluster-admin privileges to use the aggregationRule"))
	}
	return nil
}

func isAggregating(r *rbacv1.ClusterRole) bool {
	return r != nil && r.AggregationRule != nil && len(r.AggregationRule.ClusterRoleSelectors) > 0
}

func (e *Escalation) isAllowed(ctx context.Context, a *api.Admission, verb, resource, name string) bool {
	d, _, err := e.authorizer.Authorize(ctx, a.User, api.Request{
		Verb: verb, Resource: true, Namespace: a.Namespace, Name: name,
		GroupVersionResource: schema.GroupVersionResource{Group: rbacv1.GroupName, Version: "v1", Resource: resource},
	})
	return err == nil && d == api.Allow
}

func (e *Escalation) checkRole(ctx context.Context, a *api.Admission, name string, rules []rbacv1.PolicyRule) error {
	if e.canEscalate(ctx, a, name) {
		return nil
	}
	return e.checkCovered(a, name, rules)
}

// canEscalate reports whether the user may write rights into a role that the user lacks. A POST request has no name in
// its path. So, as upstream, a right that is limited to names does not cover it.
func (e *Escalation) canEscalate(ctx context.Context, a *api.Admission, name string) bool {
	if a.Origin != nil && a.Origin.Verb() == "create" {
		name = ""
	}
	return e.isAllowed(ctx, a, "escalate", a.Resource.Resource, name)
}

func (e *Escalation) checkBinding(ctx context.Context, a *api.Admission, name string, ref rbacv1.RoleRef) error {
	resource := strings.ToLower(ref.Kind) + "s"
	if e.isAllowed(ctx, a, "bind", resource, ref.Name) {
		return nil
	}
	rules, found := e.rbac.RoleRules(ref, a.Namespace)
	if !found {
		return apierrors.NewNotFound(schema.GroupResource{Group: rbacv1.GroupName, Resource: resource}, ref.Name)
	}
	return e.checkCovered(a, name, rules)
}

func (e *Escalation) checkCovered(a *api.Admission, name string, rules []rbacv1.PolicyRule) error {
	missing, err := newHeld(e.rbac.Rules(a.User, a.Namespace)).missing(rules)
	if err != nil {
		return apierrors.NewForbidden(groupResource(a), name, err)
	}
	if len(missing) == 0 {
		return nil
	}
	var list []string
	for _, r := range mergeVerbs(missing) {
		list = append(list, formatRule(r))
	}
	slices.Sort(list)
	list = slices.Compact(list)
	text := strings.Join(list, "\n")
	if len(text) > maxRefusal {
		text = strings.ToValidUTF8(text[:maxRefusal], "") + "\n..."
	} else if len(missing) >= maxMissing {
		text += "\n..."
	}
	return apierrors.NewForbidden(groupResource(a), name, fmt.Errorf(
		"user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s", a.User.Name,
		a.User.Groups, text))
}

// maxRefusal is the maximum length, in bytes, of the missing permissions in an error.
const maxRefusal = 8 << 10

// mergeVerbs merges rules that differ only in their verbs.
func mergeVerbs(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	at := map[schema.GroupResource]int{}
	for _, r := range rules {
		if len(r.APIGroups) != 1 || len(r.Resources) != 1 || len(r.ResourceNames) > 0 || len(r.NonResourceURLs) > 0 {
			out = append(out, r)
			continue
		}
		what := schema.GroupResource{Group: r.APIGroups[0], Resource: r.Resources[0]}
		if i, ok := at[what]; ok {
			out[i].Verbs = append(out[i].Verbs, r.Verbs...)
			continue
		}
		at[what] = len(out)
		r.Verbs = slices.Clone(r.Verbs)
		out = append(out, r)
	}
	return out
}

// formatRule formats a rule on one line.
func formatRule(r rbacv1.PolicyRule) string {
	var parts []string
	add := func(name string, list []string) {
		if len(list) > 0 {
			parts = append(parts, fmt.Sprintf("%s:%q", name, list))
		}
	}
	add("APIGroups", r.APIGroups)
	add("Resources", r.Resources)
	add("ResourceNames", r.ResourceNames)
	add("NonResourceURLs", r.NonResourceURLs)
	add("Verbs", r.Verbs)
	return "{" + strings.Join(parts, ", ") + "}"
}
