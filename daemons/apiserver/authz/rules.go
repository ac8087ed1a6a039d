package authz

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"clusterctl/daemons/api"
)

// grantsRequest reports whether a rule grants a request.
func grantsRequest(rule *rbacv1.PolicyRule, r *api.Request) bool {
	if !contains(rule.Verbs, r.Verb) {
		return false
	}
	if !r.Resource {
		return slices.ContainsFunc(rule.NonResourceURLs,
			func(pattern string) bool { return matchesPath(pattern, r.Path) })
	}
	return contains(rule.APIGroups, r.Group) && matchesResource(rule.Resources, r) &&
		(len(rule.ResourceNames) == 0 || r.Name != "" && slices.Contains(rule.ResourceNames, r.Name))
}

func contains(list []string, v string) bool {
	return slices.Contains(list, v) || slices.Contains(list, "*")
}

// matchesResource reports whether a list of resources covers a request. It supports "pods", "pods/log", "*/scale" and
// "*".
func matchesResource(list []string, r *api.Request) bool {
	resource := r.GroupVersionResource.Resource
	for _, entry := range list {
		if entry == "*" {
			return true
		}
		if r.Subresource == "" {
			if entry == resource {
				return true
			}
			continue
		}
		left, right, ok := strings.Cut(entry, "/")
		if ok && right == r.Subresource && (left == resource || left == "*") {
			return true
		}
	}
	return false
}

// matchesPath reports whether a pattern covers a path. It supports "/healthz" and "/healthz/*".
func matchesPath(pattern, path string) bool {
	if pattern == "*" || pattern == path {
		return true
	}
	prefix, ok := strings.CutSuffix(pattern, "*")
	return ok && strings.HasPrefix(path, prefix)
}
