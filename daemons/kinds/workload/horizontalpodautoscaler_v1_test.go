package workload

import (
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"
)

const scalerV2 = `
metadata: {name: web, annotations: {mine: stays, autoscaling.alpha.kubernetes.io/conditions: dropped}}
spec:
  scaleTargetRef: {kind: Deployment, name: web, apiVersion: apps/v1}
  maxReplicas: 5
  metrics:
  - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 70}}}
  - {type: Resource, resource: {name: memory, target: {type: Utilization, averageUtilization: 60}}}
  - {type: Pods, pods: {metric: {name: hits, selector: {matchLabels: {a: b}}}, target: {type: AverageValue, averageValue: "3"}}}
  - {type: Object, object: {describedObject: {kind: Ingress, name: i}, metric: {name: rate}, target: {type: Value, value: 2k}}}
  - {type: Object, object: {describedObject: {kind: Ingress, name: i}, metric: {name: share}, target: {type: AverageValue, averageValue: "4"}}}
  - {type: External, external: {metric: {name: queue}, target: {type: AverageValue, averageValue: "7"}}}
  - {type: ContainerResource, containerResource: {name: cpu, container: c, target: {type: AverageValue, averageValue: 100m}}}
  behavior:
    scaleUp: {stabilizationWindowSeconds: 0, selectPolicy: Max, policies: [{type: Pods, value: 4, periodSeconds: 15}]}
status:
  currentReplicas: 2
  desiredReplicas: 3
  currentMetrics:
  - {type: Resource, resource: {name: memory, current: {averageUtilization: 50, averageValue: 64Mi}}}
  - {type: Resource, resource: {name: cpu, current: {averageUtilization: 65, averageValue: 650m}}}
  - {type: Pods, pods: {metric: {name: hits}, current: {averageValue: "2"}}}
  - {type: Object, object: {describedObject: {kind: Ingress, name: i}, metric: {name: rate}, current: {value: 1k}}}
  - {type: External, external: {metric: {name: queue}, current: {value: "9", averageValue: "3"}}}
  - {type: ContainerResource, containerResource: {name: cpu, container: c, current: {averageValue: 90m}}}
  conditions:
  - {type: AbleToScale, status: "True", reason: ReadyForNewScale, message: ok, lastTransitionTime: "2026-01-02T03:04:05Z"}
`

// Clients of version 1 see the other fields of version 2 in annotations, in upstream's format, and lose none of them.
// Proves S11.
func TestVersion1AutoscalersKeepVersion2FieldsInAnnotations(t *testing.T) {
	a := &autoscalingv2.HorizontalPodAutoscaler{}
	if err := yaml.UnmarshalStrict([]byte(scalerV2), a); err != nil {
		t.Fatal(err)
	}
	made, err := autoscalerV1(a)
	if err != nil {
		t.Fatal(err)
	}
	old := made.(*autoscalingv1.HorizontalPodAutoscaler)
	if p := old.Spec.TargetCPUUtilizationPercentage; p == nil || *p != 70 {
		t.Errorf("of cpu %v", p)
	}
	if p := old.Status.CurrentCPUUtilizationPercentage; p == nil || *p != 65 {
		t.Errorf("current cpu %v", p)
	}
	for key, want := range map[string]string{
		"mine": "stays",
		metricsAnnotation: `[{"type":"Resource","resource":{"name":"memory","targetAverageUtilization":60}},` +
			`{"type":"Pods","pods":{"metricName":"hits","targetAverageValue":"3","selector":{"matchLabels":{"a":"b"}}}},` +
			`{"type":"Object","object":{"target":{"kind":"Ingress","name":"i"},"metricName":"rate","targetValue":"2k"}},` +
			`{"type":"Object","object":{"target":{"kind":"Ingress","name":"i"},"metricName":"share","targetValue":"0","averageValue":"4"}},` +
			`{"type":"External","external":{"metricName":"queue","targetAverageValue":"7"}},` +
			`{"type":"ContainerResource","containerResource":{"name":"cpu","targetAverageValue":"100m","container":"c"}}]`,
		behaviorAnnotation: `{"ScaleUp":{"StabilizationWindowSeconds":0,"SelectPolicy":"Max","Policies":[{"Type":"Pods","Value":4,"PeriodSeconds":15}],"Tolerance":null},"ScaleDown":null}`,
		currentMetricsAnnotation: `[{"type":"Resource","resource":{"name":"memory","currentAverageUtilization":50,"currentAverageValue":"64Mi"}},` +
			`{"type":"Resource","resource":{"name":"cpu","currentAverageUtilization":65,"currentAverageValue":"650m"}},` +
			`{"type":"Pods","pods":{"metricName":"hits","currentAverageValue":"2"}},` +
			`{"type":"Object","object":{"target":{"kind":"Ingress","name":"i"},"metricName":"rate","currentValue":"1k"}},` +
			`{"type":"External","external":{"metricName":"queue","currentValue":"9","currentAverageValue":"3"}},` +
			`{"type":"ContainerResource","containerResource":{"name":"cpu","currentAverageValue":"90m","container":"c"}}]`,
		conditionsAnnotation: `[{"type":"AbleToScale","status":"True","lastTransitionTime":"2026-01-02T03:04:05Z","reason":"ReadyForNewScale","message":"ok"}]`,
	} {
		if got := old.Annotations[key]; got != want {
			t.Errorf("%s\n is %s\nnot %s", key, got, want)
		}
	}
	back, err := autoscalerV2(old)
	if err != nil {
		t.Fatal(err)
	}
	dropV2Annotations(&a.ObjectMeta)
	if !equality.Semantic.DeepEqual(back, a) {
		t.Errorf("went\n%+v\nand came back\n%+v", a, back)
	}
}

// Invalid annotations are ignored, and these annotations in objects of version 2 are dropped.
// Proves S11.
func TestInvalidAutoscalerAnnotationsAreIgnored(t *testing.T) {
	bad := &autoscalingv1.HorizontalPodAutoscaler{}
	bad.Annotations = map[string]string{
		metricsAnnotation:        "{",
		behaviorAnnotation:       `[]`,
		currentMetricsAnnotation: `"x"`,
		conditionsAnnotation:     `7`,
		"mine":                   "stays",
	}
	percent := int32(7)
	bad.Spec.TargetCPUUtilizationPercentage, bad.Status.CurrentCPUUtilizationPercentage = &percent, &percent
	made, err := autoscalerV2(bad)
	if err != nil {
		t.Fatal(err)
	}
	a := made.(*autoscalingv2.HorizontalPodAutoscaler)
	if len(a.Annotations) != 1 || len(a.Spec.Metrics) != 1 || a.Spec.Behavior != nil ||
		len(a.Status.CurrentMetrics) != 1 ||
		a.Status.Conditions != nil {
		t.Errorf("made %+v", a)
	}
	a.Annotations[conditionsAnnotation] = "[]"
	HorizontalPodAutoscalers().Default(a)
	if len(a.Annotations) != 1 {
		t.Errorf("annotations %v", a.Annotations)
	}
}
