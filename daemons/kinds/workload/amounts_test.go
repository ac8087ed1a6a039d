package workload

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The test covers every field that is a number or a percentage. Only a Deployment's maxSurge may exceed 100%.
//
//style:long a table with an object for each field
func TestPercentagesAreBounded(t *testing.T) {
	const more, percent, negative = "must not be greater than 100%", "a valid percent string must " +
		"be", "must be greater than or equal to 0"
	fields := map[string]func(*intstr.IntOrString) field.ErrorList{
		"PodDisruptionBudget spec.minAvailable": func(v *intstr.IntOrString) field.ErrorList {
			return validateBudget(
				&policyv1.PodDisruptionBudget{Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: v}},
			)
		},
		"PodDisruptionBudget spec.maxUnavailable": func(v *intstr.IntOrString) field.ErrorList {
			return validateBudget(
				&policyv1.PodDisruptionBudget{Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: v}},
			)
		},
		"Deployment spec.strategy.rollingUpdate.maxUnavailable": func(v *intstr.IntOrString) field.ErrorList {
			d := &appsv1.Deployment{
				Spec: appsv1.DeploymentSpec{
					Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType,
						RollingUpdate: &appsv1.RollingUpdateDeployment{
							MaxUnavailable: v,
							MaxSurge:       new(intstr.FromInt32(1)),
						}},
				},
			}
			return validateDeployment(d)
		},
		"Deployment spec.strategy.rollingUpdate.maxSurge": func(v *intstr.IntOrString) field.ErrorList {
			d := &appsv1.Deployment{
				Spec: appsv1.DeploymentSpec{
					Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType,
						RollingUpdate: &appsv1.RollingUpdateDeployment{
							MaxUnavailable: new(intstr.FromInt32(1)),
							MaxSurge:       v,
						}},
				},
			}
			return validateDeployment(d)
		},
		"DaemonSet spec.updateStrategy.rollingUpdate.maxUnavailable": func(v *intstr.IntOrString) field.ErrorList {
			d := &appsv1.DaemonSet{
				Spec: appsv1.DaemonSetSpec{
					UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType,
						RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: v}},
				},
			}
			return validateDaemonSet(d)
		},
		"DaemonSet spec.updateStrategy.rollingUpdate.maxSurge": func(v *intstr.IntOrString) field.ErrorList {
			d := &appsv1.DaemonSet{
				Spec: appsv1.DaemonSetSpec{
					UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType,
						RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxSurge: v}},
				},
			}
			return validateDaemonSet(d)
		},
		"StatefulSet spec.updateStrategy.rollingUpdate.maxUnavailable": func(v *intstr.IntOrString) field.ErrorList {
			s := &appsv1.StatefulSet{
				Spec: appsv1.StatefulSetSpec{
					UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType,
						RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{MaxUnavailable: v}},
				},
			}
			return validateStatefulSet(s)
		},
	}
	for text, want := range map[string]string{
		"1": "", "2147483647": "", "1%": "", "100%": "", "101%": more, "2147483648%": more,
		"99999999999999999999%": more, "-1": negative, "-1%": percent, "1.5%": percent, "x": percent,
	} {
		value := intstr.Parse(text)
		for name, validate := range fields {
			want := want
			if strings.HasPrefix(name, "Deployment") && strings.HasSuffix(name, "maxSurge") && want == more {
				want = ""
			}
			_, path, _ := strings.Cut(name, " ")
			got := ""
			for _, err := range validate(&value) {
				if err.Field == path {
					got += fmt.Sprint(err.Type, " ", err.Detail)
				}
			}
			if want == "" && got != "" || want != "" && !strings.Contains(got, want) {
				t.Errorf("%s of %s: %q, want %q", name, text, got, want)
			}
		}
	}
}
