package kinds

import (
	"fmt"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
)

func flowSchemas() *Kind {
	return &Kind{
		GVK:      flowcontrolv1.SchemeGroupVersion.WithKind("FlowSchema"),
		Resource: "flowschemas", Singular: "flowschema", HasGeneration: true,
		New: newOf[flowcontrolv1.FlowSchema](), NewList: newOf[flowcontrolv1.FlowSchemaList](),
		Default:       adapt(func(s *flowcontrolv1.FlowSchema) { setEmpty(&s.Spec.MatchingPrecedence, 1000) }),
		PrepareCreate: adapt(func(s *flowcontrolv1.FlowSchema) { s.Status = flowcontrolv1.FlowSchemaStatus{} }),
		PrepareUpdate: adaptUpdate(func(s, old *flowcontrolv1.FlowSchema) { s.Status = old.Status }),
		Validate:      adaptValidate(validateFlowSchema),
		Columns: newColumns(
			"PriorityLevel",
			"MatchingPrecedence:integer",
			"DistinguisherMethod",
			"Age",
			"MissingPL",
		),
		Row: adaptRow(func(s *flowcontrolv1.FlowSchema) []any {
			method, missing := noneText, "?"
			if s.Spec.DistinguisherMethod != nil {
				method = string(s.Spec.DistinguisherMethod.Type)
			}
			for _, c := range s.Status.Conditions {
				if c.Type == flowcontrolv1.FlowSchemaConditionDangling {
					missing = string(c.Status)
				}
			}
			return []any{
				s.Spec.PriorityLevelConfiguration.Name,
				int64(s.Spec.MatchingPrecedence),
				method,
				age(s.CreationTimestamp),
				missing,
			}
		}),
		Status: newStatus(
			func(to, from *flowcontrolv1.FlowSchema) { to.Status = *from.Status.DeepCopy() },
			validateFlowSchemaStatus,
		).withKeptMeta(),
	}
}

func priorityLevelConfigurations() *Kind {
	return &Kind{
		GVK:      flowcontrolv1.SchemeGroupVersion.WithKind("PriorityLevelConfiguration"),
		Resource: "prioritylevelconfigurations", Singular: "prioritylevelconfiguration", HasGeneration: true,
		New:     newOf[flowcontrolv1.PriorityLevelConfiguration](),
		NewList: newOf[flowcontrolv1.PriorityLevelConfigurationList](),
		Default: adapt(defaultPriorityLevel),
		PrepareCreate: adapt(func(p *flowcontrolv1.PriorityLevelConfiguration) {
			p.Status = flowcontrolv1.PriorityLevelConfigurationStatus{}
		}),
		PrepareUpdate: adaptUpdate(func(p, old *flowcontrolv1.PriorityLevelConfiguration) { p.Status = old.Status }),
		Validate:      adaptValidate(validatePriorityLevel),
		Columns:       newColumns("Type", "NominalConcurrencyShares", "Queues", "HandSize", "QueueLengthLimit", "Age"),
		Row: adaptRow(func(p *flowcontrolv1.PriorityLevelConfiguration) []any {
			shares, queues, hand, length := any(noneText), any(noneText), any(noneText), any(noneText)
			if l := p.Spec.Limited; l != nil {
				shares = valueOrZero(l.NominalConcurrencyShares)
				if q := l.LimitResponse.Queuing; q != nil {
					queues, hand, length = q.Queues, q.HandSize, q.QueueLengthLimit
				}
			} else if e := p.Spec.Exempt; e != nil {
				shares = valueOrZero(e.NominalConcurrencyShares)
			}
			return []any{
				string(p.Spec.Type),
				fmt.Sprint(shares),
				fmt.Sprint(queues),
				fmt.Sprint(hand),
				fmt.Sprint(length),
				age(p.CreationTimestamp),
			}
		}),
		Status: newStatus(
			func(to, from *flowcontrolv1.PriorityLevelConfiguration) { to.Status = *from.Status.DeepCopy() },
			validatePriorityLevelStatus,
		).withKeptMeta(),
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
