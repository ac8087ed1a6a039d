package audit

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/yaml"

	"clusterctl/daemons/api"
)

// Policy decides what is recorded about which requests. It is immutable.
type Policy struct {
	rules []rule
}

// Decision is what the policy records about one request.
type Decision struct {
	Level             auditv1.Level
	OmitManagedFields bool
	omitted           []auditv1.Stage
}

// Records reports whether a stage is recorded.
func (d *Decision) Records(stage auditv1.Stage) bool {
	return d.Level != auditv1.LevelNone && !slices.Contains(d.omitted, stage)
}

// RecordsBodies reports whether the request body and the response body are recorded.
func (d *Decision) RecordsBodies() (request, response bool) {
	response = d.Level == auditv1.LevelRequestResponse
	return response || d.Level == auditv1.LevelRequest, response
}

type rule struct {
	auditv1.PolicyRule
	decision Decision
}

var noRecord = Decision{Level: auditv1.LevelNone}

// Decide returns the decision of the first rule that matches. If none matches, nothing is recorded.
func (p *Policy) Decide(u api.User, r api.Request) *Decision {
	for i := range p.rules {
		if p.rules[i].matches(&u, &r) {
			return &p.rules[i].decision
		}
	}
	return &noRecord
}

func (r *rule) matches(u *api.User, q *api.Request) bool {
	switch {
	case len(r.Verbs) > 0 && !slices.Contains(r.Verbs, q.Verb):
		return false
	case len(r.Users) > 0 && !slices.Contains(r.Users, u.Name):
		return false
	case len(r.UserGroups) > 0 && !slices.ContainsFunc(r.UserGroups, u.InGroup):
		return false
	case len(r.Namespaces) > 0 && !(q.Resource && slices.Contains(r.Namespaces, q.Namespace)):
		return false
	case len(r.Resources) > 0:
		return q.Resource &&
			slices.ContainsFunc(r.Resources, func(g auditv1.GroupResources) bool { return matchesResources(&g, q) })
	case len(r.NonResourceURLs) > 0:
		return !q.Resource && slices.ContainsFunc(r.NonResourceURLs, func(url string) bool {
			prefix, wild := strings.CutSuffix(url, "*")
			return url == q.Path || wild && strings.HasPrefix(q.Path, prefix)
		})
	}
	return true
}

func matchesResources(g *auditv1.GroupResources, q *api.Request) bool {
	if g.Group != q.Group && g.Group != "*" {
		return false
	}
	if len(g.Resources) == 0 {
		return true
	}
	if len(g.ResourceNames) > 0 && !slices.Contains(g.ResourceNames, q.Name) {
		return false
	}
	resource := q.GroupVersionResource.Resource
	for _, name := range g.Resources {
		of, sub, ok := strings.Cut(name, "/")
		switch {
		case name == "*":
			return true
		case !ok && of == resource && q.Subresource == "":
			return true
		case ok && q.Subresource != "" && (of == resource || of == "*") && (sub == q.Subresource || sub == "*"):
			return true
		}
	}
	return false
}

// ReadPolicy reads a Policy of audit.k8s.io/v1.
func ReadPolicy(file string) (*Policy, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the audit policy: %w", err)
	}
	p, err := ParsePolicy(text)
	if err != nil {
		return nil, fmt.Errorf("read the audit policy %s: %w", file, err)
	}
	return p, nil
}

// ParsePolicy parses the text of a Policy.
func ParsePolicy(text []byte) (*Policy, error) {
	var in auditv1.Policy
	if err := yaml.UnmarshalStrict(text, &in); err != nil {
		return nil, err
	}
	if in.Kind != "Policy" || in.APIVersion != auditv1.SchemeGroupVersion.String() {
		return nil, fmt.Errorf("it is a %s of %s, and not a Policy of %s", in.Kind, in.APIVersion,
			auditv1.SchemeGroupVersion)
	}
	if len(in.Rules) == 0 {
		return nil, errors.New("rules are missing")
	}
	if err := checkStages(in.OmitStages); err != nil {
		return nil, err
	}
	p := &Policy{}
	for i, r := range in.Rules {
		if err := checkRule(&r); err != nil {
			return nil, fmt.Errorf("rules[%d]: %w", i, err)
		}
		d := Decision{
			Level:             r.Level,
			OmitManagedFields: in.OmitManagedFields,
			omitted:           slices.Concat(in.OmitStages, r.OmitStages),
		}
		if r.OmitManagedFields != nil {
			d.OmitManagedFields = *r.OmitManagedFields
		}
		p.rules = append(p.rules, rule{r, d})
	}
	return p, nil
}

func checkStages(list []auditv1.Stage) error {
	for _, s := range list {
		if !slices.Contains(
			[]auditv1.Stage{
				auditv1.StageRequestReceived,
				auditv1.StageResponseStarted,
				auditv1.StageResponseComplete,
				auditv1.StagePanic,
			},
			s,
		) {
			return fmt.Errorf("omitStages: there is no stage %q", s)
		}
	}
	return nil
}

func checkRule(r *auditv1.PolicyRule) error {
	switch r.Level {
	case auditv1.LevelNone, auditv1.LevelMetadata, auditv1.LevelRequest, auditv1.LevelRequestResponse:
	default:
		return fmt.Errorf("there is no level %q: write None, Metadata, Request or RequestResponse", r.Level)
	}
	if len(r.NonResourceURLs) > 0 && len(r.Resources)+len(r.Namespaces) > 0 {
		return errors.New("a rule is about resources or about nonResourceURLs, not about both")
	}
	for _, url := range r.NonResourceURLs {
		if url != "*" && !strings.HasPrefix(url, "/") || strings.Contains(strings.TrimSuffix(url, "*"), "*") {
			return fmt.Errorf("nonResourceURLs: %q must begin with / and may have a * at its end alone", url)
		}
	}
	for _, g := range r.Resources {
		if len(g.ResourceNames) > 0 && len(g.Resources) == 0 {
			return errors.New("resourceNames need resources")
		}
		if g.Group != "*" && strings.ContainsAny(g.Group, "/ ") {
			return fmt.Errorf("resources: %q is not a group: write it without a version", g.Group)
		}
	}
	return checkStages(r.OmitStages)
}
