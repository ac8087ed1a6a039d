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
	tally      *tally
	queues     bool    // whether its level queues requests
	exempt     bool    // copied from its level; a change of the level creates new schemas
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
	anyone                  bool
	resources               []flowcontrolv1.ResourcePolicyRule
	urls                    []flowcontrolv1.NonResourcePolicyRule
}

func compile(o *flowcontrolv1.FlowSchema, l *level, t *tally) *Schema {
	s := &Schema{
		Name: o.Name, precedence: o.Spec.MatchingPrecedence, level: l, tally: t, queues: l.queuing != nil,
		exempt: l.exempt, share: float64(l.nominal),
		schemaUID: []string{string(o.UID)}, levelUID: []string{l.uid},
	}
	if s.exempt {
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
				own.anyone = true
			case subject.User != nil:
				own.users = append(own.users, subject.User.Name)
			case subject.Group != nil:
				own.groups = append(own.groups, subject.Group.Name)
			case subject.ServiceAccount != nil && subject.ServiceAccount.Name == "*":
				own.prefixes = append(own.prefixes, "system:serviceaccount:"+subject.ServiceAccount.Namespace+":")
			case subject.ServiceAccount != nil:
				own.users = append(
					own.users,
					"system:serviceaccount:"+subject.ServiceAccount.Namespace+":"+subject.ServiceAccount.Name,
				)
			}
		}
		s.rules = append(s.rules, own)
	}
	return s
}

func (s *Schema) matches(u *api.User, r *api.Request) bool {
	for i := range s.rules {
		if rule := &s.rules[i]; rule.from(u) && rule.to(r) {
			return true
		}
	}
	return false
}

func (r *rule) from(u *api.User) bool {
	if r.anyone || slices.Contains(r.users, u.Name) {
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

func (r *rule) to(q *api.Request) bool {
	if !q.Resource {
		for i := range r.urls {
			if has(r.urls[i].Verbs, q.Verb) && slices.ContainsFunc(r.urls[i].NonResourceURLs, func(url string) bool {
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
		if has(res.Verbs, q.Verb) && has(res.APIGroups, q.Group) && names(res.Resources, q) &&
			within(res, q.Namespace) {
			return true
		}
	}
	return false
}

// has reports whether a list has a value, or a *, which matches everything.
func has(list []string, s string) bool {
	for _, v := range list {
		if v == s || v == "*" {
			return true
		}
	}
	return false
}

func names(list []string, q *api.Request) bool {
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

func within(r *flowcontrolv1.ResourcePolicyRule, namespace string) bool {
	if namespace == "" {
		return r.ClusterScope
	}
	return has(r.Namespaces, namespace)
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
