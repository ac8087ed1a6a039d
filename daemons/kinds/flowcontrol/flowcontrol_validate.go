package flowcontrol

import (
	"fmt"
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"

	"clusterctl/daemons/kinds/validate"
)

func validateFlowSchema(s *flowcontrolv1.FlowSchema) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	switch n := s.Spec.MatchingPrecedence; {
	case n < 1:
		errs = append(errs, field.Invalid(path.Child("matchingPrecedence"), n, "must be a positive value"))
	case n > flowcontrolv1.FlowSchemaMaxMatchingPrecedence:
		errs = append(errs, field.Invalid(path.Child("matchingPrecedence"), n, fmt.Sprintf(
			"must not be greater than %d", flowcontrolv1.FlowSchemaMaxMatchingPrecedence)))
	case n == 1 && s.Name != flowcontrolv1.FlowSchemaNameExempt:
		errs = append(errs, field.Invalid(path.Child("matchingPrecedence"), n,
			"only the schema named 'exempt' may have matchingPrecedence 1"))
	}
	if m := s.Spec.DistinguisherMethod; m != nil {
		errs = append(
			errs,
			validate.Supported(
				m.Type,
				[]flowcontrolv1.FlowDistinguisherMethodType{
					flowcontrolv1.FlowDistinguisherMethodByNamespaceType,
					flowcontrolv1.FlowDistinguisherMethodByUserType,
				},
				path.Child("distinguisherMethod", "type"),
			)...)
	}
	if name := s.Spec.PriorityLevelConfiguration.Name; name == "" {
		errs = append(errs, field.Required(path.Child("priorityLevelConfiguration", "name"),
			"must reference a priority level"))
	} else {
		errs = append(errs, validate.DNSSubdomain(name, path.Child("priorityLevelConfiguration", "name"))...)
	}
	for i, r := range s.Spec.Rules {
		errs = append(errs, validateFlowRule(&r, path.Child("rules").Index(i))...)
	}
	for _, m := range bootstrap.MandatoryFlowSchemas {
		if m.Name == s.Name && !equality.Semantic.DeepEqual(m.Spec, s.Spec) {
			errs = append(errs, field.Invalid(path, s.Spec, fmt.Sprintf("spec of '%s' must equal the fixed value",
				s.Name)))
		}
	}
	return errs
}

func validateFlowRule(r *flowcontrolv1.PolicyRulesWithSubjects, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(r.Subjects) == 0 {
		errs = append(errs, field.Required(path.Child("subjects"), "subjects must contain at least one value"))
	}
	for i, s := range r.Subjects {
		errs = append(errs, validateFlowSubject(&s, path.Child("subjects").Index(i))...)
	}
	if len(r.ResourceRules)+len(r.NonResourceRules) == 0 {
		errs = append(errs, field.Required(path,
			"at least one of resourceRules and nonResourceRules has to be non-empty"))
	}
	for i, res := range r.ResourceRules {
		at := path.Child("resourceRules").Index(i)
		errs = append(errs, validateFlowVerbs(res.Verbs, at.Child("verbs"))...)
		errs = append(errs, requireWildcardAlone(res.APIGroups, at.Child("apiGroups"),
			"resource rules must supply at least one api group", "api groups")...)
		errs = append(errs, requireWildcardAlone(res.Resources, at.Child("resources"),
			"resource rules must supply at least one resource", "resources")...)
		at = at.Child("namespaces")
		switch {
		case len(res.Namespaces) == 0 && res.ClusterScope:
		case len(res.Namespaces) == 0 || slices.Contains(res.Namespaces, "*"):
			errs = append(errs, requireWildcardAlone(res.Namespaces, at,
				"resource rules that are not cluster scoped must supply at least one namespace", "namespaces")...)
		default:
			for j, ns := range res.Namespaces {
				for _, err := range validate.DNSLabel(ns, at.Index(j)) {
					err.Detail = "each member of this list must be '*' or a DNS-1123 label; " + err.Detail
					errs = append(errs, err)
				}
			}
		}
	}
	for i, n := range r.NonResourceRules {
		at := path.Child("nonResourceRules").Index(i)
		errs = append(errs, validateFlowVerbs(n.Verbs, at.Child("verbs"))...)
		at = at.Child("nonResourceURLs")
		errs = append(errs, requireWildcardAlone(n.NonResourceURLs, at,
			"nonResourceURLs must contain at least one value", "non-resource URLs")...)
		for j, url := range n.NonResourceURLs {
			if text := pathProblem(url); text != "" && !slices.Contains(n.NonResourceURLs, "*") {
				errs = append(errs, field.Invalid(at.Index(j), url, text))
			}
		}
	}
	return errs
}

// pathProblem returns why a non-resource path is invalid, or "".
func pathProblem(path string) string {
	switch {
	case path == "":
		return "must not be empty"
	case path == "/":
		return ""
	case path[0] != '/':
		return "must start with slash"
	case strings.Contains(path, " "):
		return "must not contain white-space"
	case strings.Contains(path, "//"):
		return "must not contain double slash"
	case strings.Contains(strings.TrimSuffix(path, "/*"), "*"):
		return "wildcard can only do suffix matching"
	}
	return ""
}

func validateFlowSubject(s *flowcontrolv1.Subject, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	given := map[flowcontrolv1.SubjectKind]bool{
		flowcontrolv1.SubjectKindUser:           s.User != nil,
		flowcontrolv1.SubjectKindGroup:          s.Group != nil,
		flowcontrolv1.SubjectKindServiceAccount: s.ServiceAccount != nil,
	}
	names := map[flowcontrolv1.SubjectKind]string{
		flowcontrolv1.SubjectKindUser:           "user",
		flowcontrolv1.SubjectKindGroup:          "group",
		flowcontrolv1.SubjectKindServiceAccount: "serviceAccount",
	}
	if _, ok := given[s.Kind]; !ok {
		return field.ErrorList{
			validate.NotSupported(
				path.Child("kind"),
				s.Kind,
				[]flowcontrolv1.SubjectKind{
					flowcontrolv1.SubjectKindGroup,
					flowcontrolv1.SubjectKindServiceAccount,
					flowcontrolv1.SubjectKindUser,
				},
			),
		}
	}
	for _, kind := range []flowcontrolv1.SubjectKind{flowcontrolv1.SubjectKindGroup,
		flowcontrolv1.SubjectKindServiceAccount, flowcontrolv1.SubjectKindUser} {
		at := path.Child(names[kind])
		switch {
		case kind == s.Kind && !given[kind]:
			errs = append(errs, field.Required(at, fmt.Sprintf("%s is required when subject kind is '%s'", names[kind],
				kind)))
		case kind != s.Kind && given[kind]:
			errs = append(errs, field.Forbidden(at, fmt.Sprintf("%s is forbidden when subject kind is not '%s'",
				names[kind], kind)))
		}
	}
	if s.User != nil && s.User.Name == "" || s.Group != nil && s.Group.Name == "" ||
		s.ServiceAccount != nil && s.ServiceAccount.Name == "" {
		errs = append(errs, field.Required(path.Child(names[s.Kind], "name"), ""))
	}
	if s.ServiceAccount != nil && s.ServiceAccount.Namespace == "" {
		errs = append(errs, field.Required(path.Child("serviceAccount", "namespace"),
			"must specify namespace for service account"))
	}
	return errs
}

// flowVerbs lists the verbs of resources.
var flowVerbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"}

func validateFlowVerbs(verbs []string, path *field.Path) field.ErrorList {
	errs := requireWildcardAlone(verbs, path, "verbs must contain at least one value", "verbs")
	unknown := func(verb string) bool { return !slices.Contains(flowVerbs, verb) }
	if !slices.Contains(verbs, "*") && slices.ContainsFunc(verbs, unknown) {
		errs = append(errs, validate.NotSupported(path, verbs, flowVerbs))
	}
	return errs
}

// requireWildcardAlone requires a list that is not empty and in which * is the only element, if present.
func requireWildcardAlone(list []string, path *field.Path, missing, others string) field.ErrorList {
	switch {
	case len(list) == 0:
		return field.ErrorList{field.Required(path, missing)}
	case len(list) > 1 && slices.Contains(list, "*"):
		return field.ErrorList{field.Invalid(path, list, "if '*' is present, must not specify other "+others)}
	}
	return nil
}

func validateFlowSchemaStatus(s, _ *flowcontrolv1.FlowSchema) field.ErrorList {
	var types []string
	for _, c := range s.Status.Conditions {
		types = append(types, string(c.Type))
	}
	return validate.ConditionTypes(types)
}
