package flowcontrol

import (
	"fmt"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/apiserver/pkg/util/shufflesharding"

	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
)

func validatePriorityLevel(p *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	exempt := p.Spec.Type == flowcontrolv1.PriorityLevelEnablementExempt
	if exempt != (p.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt) {
		errs = append(errs, field.Invalid(path.Child("type"), p.Spec.Type,
			"type must be 'Exempt' if and only if name is 'exempt'"))
	}
	switch p.Spec.Type {
	case flowcontrolv1.PriorityLevelEnablementExempt:
		if p.Spec.Limited != nil {
			errs = append(errs, field.Forbidden(path.Child("limited"), "must be nil if the type is not Limited"))
		}
		if e := p.Spec.Exempt; e != nil {
			errs = append(errs, validateShares(e.NominalConcurrencyShares, e.LendablePercent, path.Child("exempt"))...)
		}
	case flowcontrolv1.PriorityLevelEnablementLimited:
		if p.Spec.Exempt != nil {
			errs = append(errs, field.Forbidden(path.Child("exempt"), "must be nil if the type is Limited"))
		}
		if p.Spec.Limited == nil {
			errs = append(errs, field.Required(path.Child("limited"), "must not be empty when type is Limited"))
		} else {
			errs = append(errs, validateLimited(p.Spec.Limited, path.Child("limited"))...)
		}
	default:
		errs = append(
			errs,
			validate.Supported(
				p.Spec.Type,
				[]flowcontrolv1.PriorityLevelEnablement{
					flowcontrolv1.PriorityLevelEnablementExempt,
					flowcontrolv1.PriorityLevelEnablementLimited,
				},
				path.Child("type"),
			)...)
	}
	return append(errs, validateMandatoryLevel(p, path)...)
}

// validateMandatoryLevel requires that the mandatory levels stay unchanged, except for the settings of the exempt
// level.
func validateMandatoryLevel(p *flowcontrolv1.PriorityLevelConfiguration, path *field.Path) field.ErrorList {
	for _, m := range bootstrap.MandatoryPriorityLevelConfigurations {
		if m.Name != p.Name {
			continue
		}
		current, text := p.Spec, "spec of '%s' must equal the fixed value"
		if m.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt {
			current.Exempt, text = m.Spec.Exempt,
				"spec of '%s' except the 'spec.exempt' field must equal the fixed value"
		}
		if !equality.Semantic.DeepEqual(m.Spec, current) {
			return field.ErrorList{field.Invalid(path, p.Spec, fmt.Sprintf(text, p.Name))}
		}
	}
	return nil
}

func validateShares(nominal, lendable *int32, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if n := value.OrZero(nominal); n < 0 {
		errs = append(errs, field.Invalid(path.Child("nominalConcurrencyShares"), n, "must be a non-negative integer"))
	}
	if n := value.OrZero(lendable); n < 0 || n > 100 {
		errs = append(errs, field.Invalid(path.Child("lendablePercent"), n, "must be between 0 and 100, inclusive"))
	}
	return errs
}

func validateLimited(l *flowcontrolv1.LimitedPriorityLevelConfiguration, path *field.Path) field.ErrorList {
	errs := validateShares(l.NominalConcurrencyShares, l.LendablePercent, path)
	if n := l.BorrowingLimitPercent; n != nil && *n < 0 {
		errs = append(errs, field.Invalid(path.Child("borrowingLimitPercent"), *n,
			"if specified, must be a non-negative integer"))
	}
	return append(errs, validateLimitResponse(&l.LimitResponse, path.Child("limitResponse"))...)
}

func validateLimitResponse(r *flowcontrolv1.LimitResponse, path *field.Path) field.ErrorList {
	q := r.Queuing
	switch r.Type {
	case flowcontrolv1.LimitResponseTypeReject:
		if q != nil {
			return field.ErrorList{
				field.Forbidden(path.Child("queuing"), "must be nil if limited.limitResponse.type is not Limited"),
			}
		}
		return nil
	case flowcontrolv1.LimitResponseTypeQueue:
		if q == nil {
			return field.ErrorList{
				field.Required(path.Child("queuing"), "must not be empty if limited.limitResponse.type is Limited"),
			}
		}
		return validateQueuing(q, path.Child("queuing"))
	}
	return validate.Supported(r.Type,
		[]flowcontrolv1.LimitResponseType{flowcontrolv1.LimitResponseTypeQueue, flowcontrolv1.LimitResponseTypeReject},
		path.Child("type"))
}

// maxQueues is the maximum number of queues of a level.
const maxQueues = 10_000_000

func validateQueuing(q *flowcontrolv1.QueuingConfiguration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if q.QueueLengthLimit <= 0 {
		errs = append(errs, field.Invalid(path.Child("queueLengthLimit"), q.QueueLengthLimit, "must be positive"))
	}
	switch {
	case q.Queues <= 0:
		errs = append(errs, field.Invalid(path.Child("queues"), q.Queues, "must be positive"))
	case q.Queues > maxQueues:
		errs = append(errs, field.Invalid(path.Child("queues"), q.Queues,
			fmt.Sprintf("must not be greater than %d", maxQueues)))
	}
	switch hand := path.Child("handSize"); {
	case q.HandSize <= 0:
		errs = append(errs, field.Invalid(hand, q.HandSize, "must be positive"))
	case q.HandSize > q.Queues:
		errs = append(errs, field.Invalid(hand, q.HandSize, fmt.Sprintf("should not be greater than queues (%d)",
			q.Queues)))
	case shufflesharding.RequiredEntropyBits(int(q.Queues), int(q.HandSize)) > shufflesharding.MaxHashBits:
		errs = append(errs, field.Invalid(hand, q.HandSize, fmt.Sprintf(
			"required entropy bits of deckSize %d and handSize %d should not be greater than %d", q.Queues, q.HandSize,
			shufflesharding.MaxHashBits)))
	}
	return errs
}

func validatePriorityLevelStatus(p, _ *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	var types []string
	for _, c := range p.Status.Conditions {
		types = append(types, string(c.Type))
	}
	return validate.ConditionTypes(types)
}
