// Package flowcontrol declares the kinds of API priority and fairness (flowcontrol.apiserver.k8s.io).
package flowcontrol

import (
	"fmt"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
	"clusterctl/daemons/kinds/value"
)

func FlowSchemas() *kind.Kind {
	return &kind.Kind{
		GVK:      flowcontrolv1.SchemeGroupVersion.WithKind("FlowSchema"),
		Resource: "flowschemas", Singular: "flowschema", HasGeneration: true,
		New: kind.New[flowcontrolv1.FlowSchema](), NewList: kind.New[flowcontrolv1.FlowSchemaList](),
		Default: kind.Adapt(func(s *flowcontrolv1.FlowSchema) {
			value.SetEmpty(&s.Spec.MatchingPrecedence,
				1000)
		}),
		PrepareCreate: kind.Adapt(func(s *flowcontrolv1.FlowSchema) { s.Status = flowcontrolv1.FlowSchemaStatus{} }),
		PrepareUpdate: kind.AdaptUpdate(func(s, old *flowcontrolv1.FlowSchema) { s.Status = old.Status }),
		Validate:      kind.AdaptValidate(validateFlowSchema),
		Columns: kind.NewColumns("PriorityLevel", "MatchingPrecedence:integer", "DistinguisherMethod", "Age",
			"MissingPL"),
		Row: kind.AdaptRow(func(s *flowcontrolv1.FlowSchema) []any {
			method, missing := cell.NoneText, "?"
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
				cell.Age(s.CreationTimestamp),
				missing,
			}
		}),
		Status: kind.NewStatus(func(to, from *flowcontrolv1.FlowSchema) { to.Status = *from.Status.DeepCopy() },
			validateFlowSchemaStatus).WithKeptMeta(),
	}
}

func PriorityLevelConfigurations() *kind.Kind {
	return &kind.Kind{
		GVK:      flowcontrolv1.SchemeGroupVersion.WithKind("PriorityLevelConfiguration"),
		Resource: "prioritylevelconfigurations", Singular: "prioritylevelconfiguration", HasGeneration: true,
		New:     kind.New[flowcontrolv1.PriorityLevelConfiguration](),
		NewList: kind.New[flowcontrolv1.PriorityLevelConfigurationList](),
		Default: kind.Adapt(defaultPriorityLevel),
		PrepareCreate: kind.Adapt(func(p *flowcontrolv1.PriorityLevelConfiguration) {
			p.Status = flowcontrolv1.PriorityLevelConfigurationStatus{}
		}),
		PrepareUpdate: kind.AdaptUpdate(func(p,
			old *flowcontrolv1.PriorityLevelConfiguration) {
			p.Status = old.Status
		}),
		Validate: kind.AdaptValidate(validatePriorityLevel),
		Columns:  kind.NewColumns("Type", "NominalConcurrencyShares", "Queues", "HandSize", "QueueLengthLimit", "Age"),
		Row: kind.AdaptRow(func(p *flowcontrolv1.PriorityLevelConfiguration) []any {
			shares, queues, hand, length := any(cell.NoneText), any(cell.NoneText), any(cell.NoneText),
				any(cell.NoneText)
			if l := p.Spec.Limited; l != nil {
				shares = value.OrZero(l.NominalConcurrencyShares)
				if q := l.LimitResponse.Queuing; q != nil {
					queues, hand, length = q.Queues, q.HandSize, q.QueueLengthLimit
				}
			} else if e := p.Spec.Exempt; e != nil {
				shares = value.OrZero(e.NominalConcurrencyShares)
			}
			return []any{
				string(p.Spec.Type),
				fmt.Sprint(shares),
				fmt.Sprint(queues),
				fmt.Sprint(hand),
				fmt.Sprint(length),
				cell.Age(p.CreationTimestamp),
			}
		}),
		Status: kind.NewStatus(
			func(to, from *flowcontrolv1.PriorityLevelConfiguration) { to.Status = *from.Status.DeepCopy() },
			validatePriorityLevelStatus,
		).WithKeptMeta(),
	}
}

func defaultPriorityLevel(p *flowcontrolv1.PriorityLevelConfiguration) {
	if e := p.Spec.Exempt; e != nil {
		value.SetDefault(&e.NominalConcurrencyShares, 0)
		value.SetDefault(&e.LendablePercent, 0)
	}
	l := p.Spec.Limited
	if l == nil {
		return
	}
	value.SetDefault(&l.NominalConcurrencyShares, 30)
	value.SetDefault(&l.LendablePercent, 0)
	if q := l.LimitResponse.Queuing; q != nil {
		value.SetEmpty(&q.Queues, 64)
		value.SetEmpty(&q.HandSize, 8)
		value.SetEmpty(&q.QueueLengthLimit, 50)
	}
}
