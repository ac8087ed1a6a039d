package flow

import (
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"clusterctl/daemons/api"
)

// Schema is a FlowSchema, prepared for matching. It is immutable.
type Schema struct {
	Name       string
	precedence int32
	level      *level
	rules      []rule
	method     flowcontrolv1.FlowDistinguisherMethodType // empty if all requests form one flow
	tally      *requestCounters
	canQueue   bool    // whether its level queues requests
	isExempt   bool    // copied from its level; a change of the level creates new schemas
	share      float64 // nominal concurrency of its level; the weight in a Budget

	// Values of the headers that tell a client how its request was classified.
	schemaUID, levelUID []string
}

// These are response headers, in Go's canonical form.
const (
	headerSchema = "X-Kubernetes-Pf-Flowschema-Uid"
	headerLevel  = "X-Kubernetes-Pf-Prioritylevel-Uid"
)

// SetHeaders adds the UIDs of the schema and its level to a response.
func (s *Schema) SetHeaders(h map[string][]string) {
	if s.schemaUID[0] != "" { // false for built-in objects that are not stored
		h[headerSchema], h[headerLevel] = s.schemaUID, s.levelUID
	}
}

type rule struct {
	users, prefixes, groups []string // prefixes of user names, for all service accounts of a namespace
	matchesAnyone           bool
	resources               []flowcontrolv1.ResourcePolicyRule
	urls                    []flowcontrolv1.NonResourcePolicyRule
}

func newSchema(o *flowcontrolv1.FlowSchema, l *level, t *requestCounters) *Schema {
	s := &Schema{
		Name: o.Name, precedence: o.Spec.MatchingPrecedence, level: l, tally: t, canQueue: l.queuing != nil,
		isExempt: l.isExempt, share: float64(l.nominal),
		schemaUID: []string{string(o.UID)}, levelUID: []string{l.uid},
	}
	if s.isExempt {
		s.share = exemptShare
	}
	if o.Spec.DistinguisherMethod != nil {
		s.method = o.Spec.DistinguisherMethod.Type
	}
	for _, r := range o.Spec.Rules {
		own := rule{resources: r.ResourceRules, urls: r.NonResourceRules}
		for _, subject := range r.Subjects {
			switch {
			case subject.User != nil && subject.User.Name == "*", subject.Group != nil && subject.Group.Name == "*":
				own.matchesAnyone = true
			case subject.User != nil:
				own.users = append(own.users, subject.User.Name)
			case subject.Group != nil:
				own.groups = append(own.groups, subject.Group.Name)
			case subject.ServiceAccount != nil && subject.ServiceAccount.Name == "*":
				own.prefixes = append(own.prefixes, "system:serviceaccount:"+subject.ServiceAccount.Namespace+":")
			case subject.ServiceAccount != nil:
				own.users = append(own.users,
					"system:serviceaccount:"+subject.ServiceAccount.Namespace+":"+subject.ServiceAccount.Name)
			}
		}
		s.rules = append(s.rules, own)
	}
	return s
}

func (s *Schema) matchesAny(u *api.User, r *api.Request) bool {
	for i := range s.rules {
		if rule := &s.rules[i]; rule.matchesUser(u) && rule.matchesRequest(r) {
			return true
		}
	}
	return false
}

func (r *rule) matchesUser(u *api.User) bool {
	if r.matchesAnyone || slices.Contains(r.users, u.Name) {
		return true
	}
	for _, g := range r.groups {
		if slices.Contains(u.Groups, g) {
			return true
		}
	}
	for _, p := range r.prefixes {
		if strings.HasPrefix(u.Name, p) {
			return true
		}
	}
	return false
}

func (r *rule) matchesRequest(q *api.Request) bool {
	if !q.Resource {
		for i := range r.urls {
			if containsOrAll(r.urls[i].Verbs, q.Verb) &&
				slices.ContainsFunc(r.urls[i].NonResourceURLs, func(url string) bool {
					prefix, wild := strings.CutSuffix(url, "*")
					return url == q.Path || wild && strings.HasPrefix(q.Path, prefix)
				}) {
				return true
			}
		}
		return false
	}
	for i := range r.resources {
		res := &r.resources[i]
		if containsOrAll(res.Verbs, q.Verb) && containsOrAll(res.APIGroups, q.Group) &&
			matchesResource(res.Resources, q) &&
			matchesNamespace(res, q.Namespace) {
			return true
		}
	}
	return false
}

// containsOrAll reports whether a list has a value, or a *, which matches everything.
func containsOrAll(list []string, s string) bool {
	for _, v := range list {
		if v == s || v == "*" {
			return true
		}
	}
	return false
}

func matchesResource(list []string, q *api.Request) bool {
	resource := q.GroupVersionResource.Resource
	for _, v := range list {
		if v == "*" || q.Subresource == "" && v == resource {
			return true
		}
		if of, sub, ok := strings.Cut(v, "/"); ok && sub == q.Subresource && (of == resource || of == "*") {
			return true
		}
	}
	return false
}

func matchesNamespace(r *flowcontrolv1.ResourcePolicyRule, namespace string) bool {
	if namespace == "" {
		return r.ClusterScope
	}
	return containsOrAll(r.Namespaces, namespace)
}

// flowOf returns the flow of a request within the schema.
func (s *Schema) flowOf(u *api.User, r *api.Request) string {
	switch s.method {
	case flowcontrolv1.FlowDistinguisherMethodByUserType:
		return u.Name
	case flowcontrolv1.FlowDistinguisherMethodByNamespaceType:
		return r.Namespace
	}
	return ""
}
