package dev

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
)

// defineKind makes the API serve a kind without a schema.
func defineKind(t *testing.T, group, version, plural, kind string, more map[string]any) schema.GroupVersionResource {
	t.Helper()
	v := map[string]any{"name": version, "served": true, "storage": true,
		"schema": map[string]any{
			"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
		}}
	for key, value := range more {
		v[key] = value
	}
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": plural + "." + group,
			"annotations": map[string]any{"api-approved.kubernetes.io": "unapproved, for a test"}},
		"spec": map[string]any{
			"group":    group,
			"scope":    "Namespaced",
			"names":    map[string]any{"plural": plural, "kind": kind},
			"versions": []any{v},
		},
	}}
	must[*unstructured.Unstructured](t)(
		dynamicClient.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
			Resource: "customresourcedefinitions"}).
			Create(t.Context(), definition, metav1.CreateOptions{}),
	)
	out := schema.GroupVersionResource{Group: group, Version: version, Resource: plural}
	waitFor(t, kind, func(ctx context.Context) (bool, any) {
		_, err := dynamicClient.Resource(out).Namespace("default").List(ctx, metav1.ListOptions{})
		return err == nil, err
	})
	return out
}

func createAutoscaler(t *testing.T, ns string, of autoscalingv2.CrossVersionObjectReference, most int32) {
	t.Helper()
	must[*autoscalingv2.HorizontalPodAutoscaler](t)(
		sharedClient.AutoscalingV2().HorizontalPodAutoscalers(ns).Create(t.Context(),
			&autoscalingv2.HorizontalPodAutoscaler{
				ObjectMeta: metav1.ObjectMeta{
					Name: "a",
				}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{ScaleTargetRef: of, MaxReplicas: most,
					Metrics: []autoscalingv2.MetricSpec{
						{
							Type: autoscalingv2.ResourceMetricSourceType,
							Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceCPU,
								Target: autoscalingv2.MetricTarget{
									Type:               autoscalingv2.UtilizationMetricType,
									AverageUtilization: ptr.To[int32](50),
								}},
						},
					}}}, metav1.CreateOptions{}),
	)
}

// awaitCondition waits until a condition of the autoscaler has a reason.
func awaitCondition(
	t *testing.T,
	ns string,
	kind autoscalingv2.HorizontalPodAutoscalerConditionType,
	reason string,
) (status autoscalingv2.HorizontalPodAutoscalerStatus) {
	t.Helper()
	waitFor(t, reason, func(ctx context.Context) (bool, any) {
		got, err := sharedClient.AutoscalingV2().HorizontalPodAutoscalers(ns).Get(ctx, "a", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		status = got.Status
		return slices.ContainsFunc(status.Conditions, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool {
			return c.Type == kind && c.Reason == reason
		}), status
	})
	return status
}

// Proves S33.
func TestDeploymentsAreScaledByTheUsageOfTheirPods(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	createDeployment(t, ns, 2, func(d *appsv1.Deployment) {
		c := &d.Spec.Template.Spec.Containers[0]
		c.Command = strings.Fields("stress-ng --cpu 1 --cpu-load 2") // 20m
		c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}
	})
	awaitRollout(t, ns)
	awaitMetrics(t, ns, 2, time.Now())
	createAutoscaler(t, ns,
		autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, 6)
	status := awaitCondition(t, ns, autoscalingv2.AbleToScale, "SucceededRescale")
	if status.CurrentReplicas != 2 || status.DesiredReplicas != 4 || status.LastScaleTime == nil ||
		len(status.CurrentMetrics) != 1 ||
		*status.CurrentMetrics[0].Resource.Current.AverageUtilization/10 < 19 ||
		*status.CurrentMetrics[0].Resource.Current.AverageUtilization/10 > 21 {
		t.Errorf("status: %+v", status)
	}
	awaitCondition(t, ns, autoscalingv2.ScalingLimited, "ScaleUpLimit")
	waitFor(t, "four replicas and the event", func(ctx context.Context) (bool, any) {
		d, err := sharedClient.AppsV1().Deployments(ns).Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		events, err := sharedClient.CoreV1().
			Events(ns).
			List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=HorizontalPodAutoscaler"})
		return err == nil && *d.Spec.Replicas >= 4 && slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.Reason == "SuccessfulRescale" &&
				e.Message == "New size: 4; reason: cpu resource utilization (percentage of request) above target"
		}), fmt.Sprint(*d.Spec.Replicas, events)
	})
}

// Proves S12.
func TestCustomKindsWithAScaleAreScaled(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	fleets := defineKind(
		t,
		"scaled.example.com",
		"v1",
		"fleets",
		"Fleet",
		map[string]any{"subresources": map[string]any{"scale": map[string]any{
			"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}}},
	)
	fleet := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "scaled.example.com/v1", "kind": "Fleet",
		"metadata": map[string]any{"name": "f"}, "spec": map[string]any{"size": int64(5)}}}
	must[*unstructured.Unstructured](t)(dynamicClient.Resource(fleets).Namespace(ns).Create(t.Context(), fleet,
		metav1.CreateOptions{}))
	createAutoscaler(t, ns,
		autoscalingv2.CrossVersionObjectReference{APIVersion: "scaled.example.com/v1", Kind: "Fleet", Name: "f"}, 3)
	awaitCondition(t, ns, autoscalingv2.AbleToScale, "SucceededRescale")
	got := must[*unstructured.Unstructured](t)(dynamicClient.Resource(fleets).Namespace(ns).Get(t.Context(), "f",
		metav1.GetOptions{}))
	if size, _, _ := unstructured.NestedInt64(got.Object, "spec", "size"); size != 3 {
		t.Errorf("size %d, want 3", size)
	}
	awaitCondition(t, ns, autoscalingv2.ScalingActive,
		"InvalidSelector") // at the next evaluation, after it is within its bounds
}

func TestAutoscalersReportWhyTheyDoNotScale(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	createAutoscaler(t, ns,
		autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, 3)
	awaitCondition(t, ns, autoscalingv2.AbleToScale, "FailedGetScale")
	createDeployment(t, ns, 1, nil)
	status := awaitCondition(t, ns, autoscalingv2.AbleToScale, "SucceededGetScale")
	if status.CurrentReplicas != 1 {
		t.Errorf("status: %+v", status)
	}
}
