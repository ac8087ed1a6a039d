package kinds

import (
	"fmt"
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func flowSchemas() *Kind {
	return &Kind{
		GVK:      flowcontrolv1.SchemeGroupVersion.WithKind("FlowSchema"),
		Resource: "flowschemas", Singular: "flowschema", HasGeneration: true,
		New: made[flowcontrolv1.FlowSchema](), NewList: made[flowcontrolv1.FlowSchemaList](),
		Default:       does(func(s *flowcontrolv1.FlowSchema) { setEmpty(&s.Spec.MatchingPrecedence, 1000) }),
		PrepareCreate: does(func(s *flowcontrolv1.FlowSchema) { s.Status = flowcontrolv1.FlowSchemaStatus{} }),
		PrepareUpdate: updates(func(s, old *flowcontrolv1.FlowSchema) { s.Status = old.Status }),
		Validate:      checks(validateFlowSchema),
		Columns:       columns("PriorityLevel", "MatchingPrecedence:integer", "DistinguisherMethod", "Age", "MissingPL"),
		Row: row(func(s *flowcontrolv1.FlowSchema) []any {
			method, missing := none, "?"
			if s.Spec.DistinguisherMethod != nil {
				method = string(s.Spec.DistinguisherMethod.Type)
			}
			for _, c := range s.Status.Conditions {
				if c.Type == flowcontrolv1.FlowSchemaConditionDangling {
					missing = string(c.Status)
				}
			}
			return []any{s.Spec.PriorityLevelConfiguration.Name, int64(s.Spec.MatchingPrecedence), method, age(s.CreationTimestamp), missing}
		}),
		Status: status(func(to, from *flowcontrolv1.FlowSchema) { to.Status = *from.Status.DeepCopy() }, validateFlowSchemaStatus),
	}
}

func priorityLevelConfigurations() *Kind {
	return &Kind{
		GVK:      flowcontrolv1.SchemeGroupVersion.WithKind("PriorityLevelConfiguration"),
		Resource: "prioritylevelconfigurations", Singular: "prioritylevelconfiguration", HasGeneration: true,
		New: made[flowcontrolv1.PriorityLevelConfiguration](), NewList: made[flowcontrolv1.PriorityLevelConfigurationList](),
		Default: does(defaultPriorityLevel),
		PrepareCreate: does(func(p *flowcontrolv1.PriorityLevelConfiguration) {
			p.Status = flowcontrolv1.PriorityLevelConfigurationStatus{}
		}),
		PrepareUpdate: updates(func(p, old *flowcontrolv1.PriorityLevelConfiguration) { p.Status = old.Status }),
		Validate:      checks(validatePriorityLevel),
		Columns:       columns("Type", "NominalConcurrencyShares", "Queues", "HandSize", "QueueLengthLimit", "Age"),
		Row: row(func(p *flowcontrolv1.PriorityLevelConfiguration) []any {
			shares, queues, hand, length := any(none), any(none), any(none), any(none)
			if l := p.Spec.Limited; l != nil {
				shares = value(l.NominalConcurrencyShares)
				if q := l.LimitResponse.Queuing; q != nil {
					queues, hand, length = q.Queues, q.HandSize, q.QueueLengthLimit
				}
			} else if e := p.Spec.Exempt; e != nil {
				shares = value(e.NominalConcurrencyShares)
			}
			return []any{string(p.Spec.Type), fmt.Sprint(shares), fmt.Sprint(queues), fmt.Sprint(hand), fmt.Sprint(length), age(p.CreationTimestamp)}
		}),
		Status: status(func(to, from *flowcontrolv1.PriorityLevelConfiguration) { to.Status = *from.Status.DeepCopy() }, validatePriorityLevelStatus),
	}
}

func defaultPriorityLevel(p *flowcontrolv1.PriorityLevelConfiguration) {
	if e := p.Spec.Exempt; e != nil {
		setDefault(&e.NominalConcurrencyShares, 0)
		setDefault(&e.LendablePercent, 0)
	}
	l := p.Spec.Limited
	if l == nil {
		return
	}
	setDefault(&l.NominalConcurrencyShares, 30)
	setDefault(&l.LendablePercent, 0)
	if q := l.LimitResponse.Queuing; q != nil {
		setEmpty(&q.Queues, 64)
		setEmpty(&q.HandSize, 8)
		setEmpty(&q.QueueLengthLimit, 50)
	}
}

func validateFlowSchema(s *flowcontrolv1.FlowSchema) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	if n := s.Spec.MatchingPrecedence; n < 1 || n > flowcontrolv1.FlowSchemaMaxMatchingPrecedence {
		errs = append(errs, field.Invalid(path.Child("matchingPrecedence"), n, fmt.Sprintf("must be a value between 1 and %d, inclusive", flowcontrolv1.FlowSchemaMaxMatchingPrecedence)))
	}
	if n := s.Spec.MatchingPrecedence; n == 1 && s.Name != flowcontrolv1.FlowSchemaNameExempt {
		errs = append(errs, field.Invalid(path.Child("matchingPrecedence"), n, "only the schema named 'exempt' may have matchingPrecedence 1"))
	}
	if m := s.Spec.DistinguisherMethod; m != nil {
		errs = append(errs, supported(m.Type, []flowcontrolv1.FlowDistinguisherMethodType{flowcontrolv1.FlowDistinguisherMethodByNamespaceType, flowcontrolv1.FlowDistinguisherMethodByUserType}, path.Child("distinguisherMethod", "type"))...)
	}
	if name := s.Spec.PriorityLevelConfiguration.Name; name == "" {
		errs = append(errs, field.Required(path.Child("priorityLevelConfiguration", "name"), "must reference a priority level"))
	} else {
		errs = append(errs, dns1123Subdomain(name, path.Child("priorityLevelConfiguration", "name"))...)
	}
	for i, r := range s.Spec.Rules {
		errs = append(errs, validateFlowRule(&r, path.Child("rules").Index(i))...)
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
		errs = append(errs, field.Required(path, "at least one of resourceRules and nonResourceRules has to be non-empty"))
	}
	for i, res := range r.ResourceRules {
		at := path.Child("resourceRules").Index(i)
		errs = append(errs, wildcardAlone(res.Verbs, at.Child("verbs"))...)
		for _, verb := range res.Verbs {
			if verb != "*" && !oneOf(verb, resourceVerbs) {
				errs = append(errs, notSupported(at.Child("verbs"), verb, resourceVerbs))
			}
		}
		for _, ns := range res.Namespaces {
			if ns != "*" {
				errs = append(errs, dns1123Label(ns, at.Child("namespaces"))...)
			}
		}
		errs = append(errs, wildcardAlone(res.APIGroups, at.Child("apiGroups"))...)
		errs = append(errs, wildcardAlone(res.Resources, at.Child("resources"))...)
		if len(res.Namespaces) == 0 && !res.ClusterScope {
			errs = append(errs, field.Required(at.Child("namespaces"), "resource rules that are not cluster scoped must supply at least one namespace"))
		} else if len(res.Namespaces) > 0 {
			errs = append(errs, wildcardAlone(res.Namespaces, at.Child("namespaces"))...)
		}
	}
	for i, n := range r.NonResourceRules {
		at := path.Child("nonResourceRules").Index(i)
		errs = append(errs, wildcardAlone(n.Verbs, at.Child("verbs"))...)
		errs = append(errs, wildcardAlone(n.NonResourceURLs, at.Child("nonResourceURLs"))...)
		for j, url := range n.NonResourceURLs {
			if url != "*" && (!strings.HasPrefix(url, "/") || strings.Contains(strings.TrimSuffix(url, "/*"), "*")) {
				errs = append(errs, field.Invalid(at.Child("nonResourceURLs").Index(j), url, "must start with a '/' and may have a wildcard only as its last path segment"))
			}
		}
	}
	return errs
}

func validateFlowSubject(s *flowcontrolv1.Subject, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	given := map[flowcontrolv1.SubjectKind]bool{flowcontrolv1.SubjectKindUser: s.User != nil, flowcontrolv1.SubjectKindGroup: s.Group != nil, flowcontrolv1.SubjectKindServiceAccount: s.ServiceAccount != nil}
	names := map[flowcontrolv1.SubjectKind]string{flowcontrolv1.SubjectKindUser: "user", flowcontrolv1.SubjectKindGroup: "group", flowcontrolv1.SubjectKindServiceAccount: "serviceAccount"}
	if _, known := given[s.Kind]; !known {
		return field.ErrorList{notSupported(path.Child("kind"), s.Kind, []flowcontrolv1.SubjectKind{flowcontrolv1.SubjectKindGroup, flowcontrolv1.SubjectKindServiceAccount, flowcontrolv1.SubjectKindUser})}
	}
	for _, kind := range []flowcontrolv1.SubjectKind{flowcontrolv1.SubjectKindGroup, flowcontrolv1.SubjectKindServiceAccount, flowcontrolv1.SubjectKindUser} {
		at := path.Child(names[kind])
		switch {
		case kind == s.Kind && !given[kind]:
			errs = append(errs, field.Required(at, fmt.Sprintf("%s is required when subject kind is '%s'", names[kind], kind)))
		case kind != s.Kind && given[kind]:
			errs = append(errs, field.Forbidden(at, fmt.Sprintf("%s is forbidden when subject kind is not '%s'", names[kind], kind)))
		}
	}
	if s.User != nil && s.User.Name == "" || s.Group != nil && s.Group.Name == "" || s.ServiceAccount != nil && s.ServiceAccount.Name == "" {
		errs = append(errs, field.Required(path.Child(names[s.Kind], "name"), ""))
	}
	if s.ServiceAccount != nil && s.ServiceAccount.Namespace == "" {
		errs = append(errs, field.Required(path.Child("serviceAccount", "namespace"), "must specify namespace for service account"))
	}
	return errs
}

// wildcardAlone demands something, and that a * stands alone.
// resourceVerbs are what may be done with resources.
var resourceVerbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"}

func wildcardAlone(list []string, path *field.Path) field.ErrorList {
	switch {
	case len(list) == 0:
		return field.ErrorList{field.Required(path, path.String()+" must contain at least one value")}
	case len(list) > 1 && slices.Contains(list, "*"):
		return field.ErrorList{field.Invalid(path, list, "if '*' is present, must not specify other values")}
	}
	return nil
}

func validatePriorityLevel(p *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	if exempt := p.Spec.Type == flowcontrolv1.PriorityLevelEnablementExempt; exempt != (p.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt) {
		errs = append(errs, field.Invalid(path.Child("type"), p.Spec.Type, "type must be 'Exempt' if and only if name is 'exempt'"))
	}
	switch p.Spec.Type {
	case flowcontrolv1.PriorityLevelEnablementExempt:
		if p.Spec.Limited != nil {
			errs = append(errs, field.Forbidden(path.Child("limited"), "must be nil if the type is not Limited"))
		}
		return errs
	case flowcontrolv1.PriorityLevelEnablementLimited:
	default:
		return append(errs, notSupported(path.Child("type"), p.Spec.Type, []flowcontrolv1.PriorityLevelEnablement{flowcontrolv1.PriorityLevelEnablementExempt, flowcontrolv1.PriorityLevelEnablementLimited}))
	}
	l := p.Spec.Limited
	if p.Spec.Exempt != nil {
		errs = append(errs, field.Forbidden(path.Child("exempt"), "must be nil if the type is Limited"))
	}
	if l == nil {
		return append(errs, field.Required(path.Child("limited"), "must not be empty when type is Limited"))
	}
	path = path.Child("limited")
	errs = append(errs, notNegative(int64(value(l.NominalConcurrencyShares)), path.Child("nominalConcurrencyShares"))...)
	if n := value(l.LendablePercent); n < 0 || n > 100 {
		errs = append(errs, field.Invalid(path.Child("lendablePercent"), n, "must be between 0 and 100, inclusive"))
	}
	if n := l.BorrowingLimitPercent; n != nil && *n < 0 {
		errs = append(errs, field.Invalid(path.Child("borrowingLimitPercent"), *n, "if specified, must be a non-negative integer"))
	}
	return append(errs, validateLimitResponse(&l.LimitResponse, path.Child("limitResponse"))...)
}

func validateLimitResponse(r *flowcontrolv1.LimitResponse, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	q := r.Queuing
	switch r.Type {
	case flowcontrolv1.LimitResponseTypeReject:
		if q != nil {
			errs = append(errs, field.Forbidden(path.Child("queuing"), "must be nil if limited.limitResponse.type is not Limited"))
		}
		return errs
	case flowcontrolv1.LimitResponseTypeQueue:
	default:
		return append(errs, notSupported(path.Child("type"), r.Type, []flowcontrolv1.LimitResponseType{flowcontrolv1.LimitResponseTypeQueue, flowcontrolv1.LimitResponseTypeReject}))
	}
	if q == nil {
		return append(errs, field.Required(path.Child("queuing"), "must not be empty if limited.limitResponse.type is Limited"))
	}
	path = path.Child("queuing")
	if q.QueueLengthLimit <= 0 {
		errs = append(errs, field.Invalid(path.Child("queueLengthLimit"), q.QueueLengthLimit, "must be positive"))
	}
	if q.Queues <= 0 || q.Queues > 10_000_000 {
		errs = append(errs, field.Invalid(path.Child("queues"), q.Queues, "must be positive, and not greater than 10000000"))
	}
	if q.HandSize <= 0 || q.HandSize > q.Queues {
		errs = append(errs, field.Invalid(path.Child("handSize"), q.HandSize, fmt.Sprintf("should be positive, and not greater than queues (%d)", q.Queues)))
	}
	return errs
}
