package flowcontrol

import (
	"strings"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
)

func TestMandatoryFlowControlIsImmutable(t *testing.T) {
	for _, want := range bootstrap.MandatoryFlowSchemas {
		s := want.DeepCopy()
		if errs := validateFlowSchema(s); len(errs) > 0 {
			t.Errorf("%s: %v", s.Name, errs)
		}
		s.Spec.Rules = nil
		if errs := validateFlowSchema(s); len(errs) != 1 ||
			!strings.Contains(errs[0].Detail, "must equal the fixed value") {
			t.Errorf("%s without rules: %v", s.Name, errs)
		}
	}
	for _, want := range bootstrap.MandatoryPriorityLevelConfigurations {
		p := want.DeepCopy()
		if errs := validatePriorityLevel(p); len(errs) > 0 {
			t.Errorf("%s: %v", p.Name, errs)
		}
		shares := int32(7)
		if p.Spec.Exempt != nil {
			p.Spec.Exempt.NominalConcurrencyShares = &shares
			if errs := validatePriorityLevel(p); len(errs) > 0 {
				t.Errorf("%s with other shares: %v", p.Name, errs)
			}
			shares = -1
			if errs := validatePriorityLevel(p); len(errs) != 1 || errs[0].Detail != "must be a non-negative integer" {
				t.Errorf("%s with fewer than no shares: %v", p.Name, errs)
			}
			continue
		}
		p.Spec.Limited.NominalConcurrencyShares = &shares
		if errs := validatePriorityLevel(p); len(errs) != 1 ||
			errs[0].Detail != "spec of 'catch-all' must equal the fixed value" {
			t.Errorf("%s with other shares: %v", p.Name, errs)
		}
	}
}

func TestFlowRulesAreValidated(t *testing.T) {
	for want, rule := range map[string]flowcontrolv1.PolicyRulesWithSubjects{
		`resourceRules[0].verbs: Invalid value: ["*","get"]: if '*' is present, must not specify other verbs`: {ResourceRules: []flowcontrolv1.ResourcePolicyRule{
			{Verbs: []string{"*", "get"}, APIGroups: []string{"*"}, Resources: []string{"*"}, ClusterScope: true}}},
		`resourceRules[0].apiGroups: Required value: resource rules must supply at least one api group`: {ResourceRules: []flowcontrolv1.ResourcePolicyRule{
			{Verbs: []string{"get"}, Resources: []string{"*"}, ClusterScope: true}}},
		`resourceRules[0].resources: Invalid value: ["*","a"]: if '*' is present, must not specify other resources`: {ResourceRules: []flowcontrolv1.ResourcePolicyRule{
			{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"*", "a"}, ClusterScope: true}}},
		`nonResourceRules[0].verbs: Unsupported value: ["fly"]: supported values: "create", "delete"`: {NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{
			{Verbs: []string{"fly"}, NonResourceURLs: []string{"*"}}}},
		`nonResourceRules[0].nonResourceURLs[1]: Invalid value: "/a*": wildcard can only do suffix matching`: {NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{
			{Verbs: []string{"get"}, NonResourceURLs: []string{"/", "/a*", "/b/*"}}}},
	} {
		rule.Subjects = []flowcontrolv1.Subject{
			{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: "a"}},
		}
		errs := validateFlowRule(&rule, nil)
		if len(errs) != 1 || !strings.Contains(errs[0].Error(), want) {
			t.Errorf("%v, want %s", errs, want)
		}
	}
}
