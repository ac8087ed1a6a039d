// Package match decides which writes a webhook or an admission policy matches, by rules, selectors and match
// conditions. Packages webhook and policy handle these writes.
package match

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
)

// Rule selects requests, and optionally names of objects.
type Rule = admissionregistrationv1.NamedRuleWithOperations

// Criteria are compared with writes.
type Criteria struct {
	rules, exclude      []Rule
	exactVersion        bool // only the version that the client used counts
	namespaces, objects labels.Selector
}

// New returns criteria. A nil parameter restricts nothing.
func New(
	rules, exclude []Rule,
	policy *admissionregistrationv1.MatchPolicyType,
	namespaces, objects *metav1.LabelSelector,
) (*Criteria, error) {
	c := &Criteria{rules: rules, exclude: exclude, exactVersion: policy != nil &&
		*policy == admissionregistrationv1.Exact}
	var err error
	if c.namespaces, err = Selector(namespaces); err != nil {
		return nil, fmt.Errorf("read the namespace selector: %w", err)
	}
	if c.objects, err = Selector(objects); err != nil {
		return nil, fmt.Errorf("read the object selector: %w", err)
	}
	return c, nil
}

// WithoutNames returns rules that do not restrict names.
func WithoutNames(rules []admissionregistrationv1.RuleWithOperations) []Rule {
	out := make([]Rule, 0, len(rules))
	for _, r := range rules {
		out = append(out, Rule{RuleWithOperations: r})
	}
	return out
}

// Selector parses a selector; nil selects everything.
func Selector(s *metav1.LabelSelector) (labels.Selector, error) {
	if s == nil {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(s)
}

// exemptResources are never passed to webhooks or policies, which could make them impossible to repair.
var exemptResources = []string{
	"validatingwebhookconfigurations", "mutatingwebhookconfigurations",
	"validatingadmissionpolicies", "validatingadmissionpolicybindings", "mutatingadmissionpolicies",
	"mutatingadmissionpolicybindings",
}

// Exempt reports whether a write skips webhooks and policies. These are writes of their own configurations, the
// server's internal writes, and writes that they have seen in another form. If internal writes depended on webhooks, a
// broken one could keep the server from becoming ready.
func Exempt(a *api.Admission) bool {
	return a.IsConverted || a.Internal ||
		a.Resource.Group == admissionregistrationv1.GroupName && slices.Contains(exemptResources, a.Resource.Resource)
}

// Match reports whether a write matches, and in which version. It does not evaluate match conditions.
func (c *Criteria) Match(a *api.Admission, objects api.Objects) (v api.Version, ok bool, err error) {
	if v, ok = c.version(a, c.rules); !ok {
		return v, false, nil
	}
	if _, excluded := c.version(a, c.exclude); excluded {
		return v, false, nil
	}
	if !c.objects.Empty() && !matchesLabels(a.Object, c.objects) && !matchesLabels(a.Old, c.objects) {
		return v, false, nil
	}
	if c.namespaces.Empty() {
		return v, true, nil
	}
	set, existing, err := namespaceLabels(a, objects)
	return v, err == nil && (!existing || c.namespaces.Matches(set)), err
}

// RequestedVersion returns the version that the client used.
func RequestedVersion(a *api.Admission) api.Version {
	if a.Versions != nil {
		return a.Versions.Served()[0]
	}
	return api.Version{Kind: a.Kind, Resource: a.Resource}
}

// version returns the version in which rules match a write. This is the client's version, or else another version of
// the same resource.
func (c *Criteria) version(a *api.Admission, rules []Rule) (api.Version, bool) {
	if len(rules) == 0 || !slices.ContainsFunc(rules, func(r Rule) bool { return matchesOperation(r, a) }) {
		return api.Version{}, false
	}
	chosen := RequestedVersion(a)
	if matchesAnyRule(rules, a, chosen.Resource) {
		return chosen, true
	}
	if c.exactVersion || a.Versions == nil {
		return chosen, false
	}
	for _, v := range a.Versions.Served()[1:] {
		if matchesAnyRule(rules, a, v.Resource) {
			return v, true
		}
	}
	return chosen, false
}

func matchesOperation(r Rule, a *api.Admission) bool {
	return slices.ContainsFunc(r.Operations, func(o admissionregistrationv1.OperationType) bool {
		return o == admissionregistrationv1.OperationAll || string(o) == a.Operation
	})
}

func matchesAnyRule(rules []Rule, a *api.Admission, gvr schema.GroupVersionResource) bool {
	return slices.ContainsFunc(rules, func(r Rule) bool {
		return containsOrAll(r.APIGroups, gvr.Group) && containsOrAll(r.APIVersions, gvr.Version) &&
			matchesResource(r.Resources, gvr.Resource, a.Subresource) &&
			matchesOperation(r, a) && matchesScope(r.Scope, a) &&
			(len(r.ResourceNames) == 0 || a.Name != "" && slices.Contains(r.ResourceNames, a.Name))
	})
}

func containsOrAll(list []string, value string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return s == "*" || s == value })
}

func matchesResource(list []string, resource, subresource string) bool {
	return slices.ContainsFunc(list, func(text string) bool {
		name, sub, _ := strings.Cut(text, "/")
		return (name == "*" || name == resource) && (sub == "*" || sub == subresource)
	})
}

func matchesScope(s *admissionregistrationv1.ScopeType, a *api.Admission) bool {
	if s == nil {
		return true
	}
	switch *s {
	case admissionregistrationv1.NamespacedScope:
		return isNamespaced(a)
	case admissionregistrationv1.ClusterScope:
		return !isNamespaced(a)
	}
	return true
}

// isNamespaced reports whether the object is in a namespace. A Namespace is in none.
func isNamespaced(a *api.Admission) bool { return a.Namespace != "" && !isNamespace(a) }

func isNamespace(a *api.Admission) bool {
	return a.Resource.Group == "" && a.Resource.Resource == "namespaces"
}

func matchesLabels(obj runtime.Object, s labels.Selector) bool {
	if obj == nil {
		return false
	}
	m, err := meta.Accessor(obj)
	return err == nil && s.Matches(labels.Set(m.GetLabels()))
}

// namespaceLabels returns the labels that namespace selectors are compared with. It returns false for an object without
// a namespace, which every selector matches.
func namespaceLabels(a *api.Admission, objects api.Objects) (labels.Set, bool, error) {
	if isNamespace(a) {
		if a.Subresource == "" && (a.Operation == "CREATE" || a.Operation == "UPDATE") {
			m, err := meta.Accessor(a.Object)
			if err != nil {
				return nil, false, err
			}
			return m.GetLabels(), true, nil
		}
		if m, err := meta.Accessor(a.Old); a.Old != nil && err == nil {
			return m.GetLabels(), true, nil
		}
	}
	if !isNamespaced(a) {
		return nil, false, nil
	}
	ns, ok := Namespace(a, objects)
	if !ok {
		return nil, false, fmt.Errorf("the namespace %q is not known", a.Namespace)
	}
	m, err := meta.Accessor(ns)
	if err != nil {
		return nil, false, err
	}
	return m.GetLabels(), true, nil
}

// Namespace returns the namespace that an object is in.
func Namespace(a *api.Admission, objects api.Objects) (runtime.Object, bool) {
	return objects.Get(schema.GroupResource{Resource: "namespaces"}, "", a.Namespace)
}
