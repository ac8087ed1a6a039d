// Package clusterrole writes the rules of the selected roles into aggregated cluster roles, so that a role shows what
// it allows. Authorization does not depend on it: the API server evaluates the aggregation itself.
package clusterrole

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	rbaclisters "k8s.io/client-go/listers/rbac/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
)

type controller struct {
	loop.Context
	loop.Loop
	roles rbaclisters.ClusterRoleLister
}

// New returns the controller.
func New(c loop.Context) loop.Controller {
	roles := informers.ClusterRoles(c.Informers)
	r := &controller{Context: c, roles: roles.Lister()}
	r.Loop = loop.Loop{
		Name:            "clusterrole-aggregation",
		QueueMetricName: "ClusterRoleAggregator",
		Context:         c,
		Sync:            r.sync,
		Synced:          []cache.InformerSynced{roles.Informer().HasSynced},
	}
	c.On(roles.Informer(), func(any) { r.enqueueAggregated() })
	return r
}

// enqueueAggregated queues all aggregated roles: each may select the changed role, or may have selected it before.
func (r *controller) enqueueAggregated() {
	all, err := r.roles.List(labels.Everything())
	if err != nil {
		return
	}
	for _, role := range all {
		if role.AggregationRule != nil {
			r.Queue().Add(role.Name)
		}
	}
}

func (r *controller) sync(ctx context.Context, name string) error {
	role, err := r.roles.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	if role.AggregationRule == nil || role.DeletionTimestamp != nil {
		return nil
	}
	all, err := r.roles.List(labels.Everything())
	if err != nil {
		return err
	}
	rules, err := gatherRules(role, all)
	if err != nil {
		return err
	}
	if equality.Semantic.DeepEqual(rules, role.Rules) {
		return nil
	}
	updated := role.DeepCopy()
	updated.Rules = rules
	if _, err := r.Client.RbacV1().ClusterRoles().Update(ctx, updated, metav1.UpdateOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		return fmt.Errorf("write the rules of aggregated cluster role %s: %w", name, err)
	}
	return nil
}

// gatherRules returns the rules of the roles that a role selects, each rule once, in the order of its selectors and of
// the roles' names.
func gatherRules(role *rbacv1.ClusterRole, all []*rbacv1.ClusterRole) ([]rbacv1.PolicyRule, error) {
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, func(a, b *rbacv1.ClusterRole) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	var rules []rbacv1.PolicyRule
	for i := range role.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			return nil, fmt.Errorf("read selector %d of aggregated cluster role %s: %w", i, role.Name, err)
		}
		for _, other := range sorted {
			if other.Name == role.Name || !selector.Matches(labels.Set(other.Labels)) {
				continue
			}
			for _, rule := range other.Rules {
				if !slices.ContainsFunc(rules,
					func(r rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(r, rule) }) {
					rules = append(rules, *rule.DeepCopy())
				}
			}
		}
	}
	return rules, nil
}
