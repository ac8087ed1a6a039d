// Package core declares pods, nodes, namespaces, configuration, events, limits and classes of pods.
package core

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
	"clusterctl/daemons/kinds/podspec"
)

func Pods() *kind.Kind {
	return &kind.Kind{
		GVK:      corev1.SchemeGroupVersion.WithKind("Pod"),
		Resource: "pods", Singular: "pod", ShortNames: []string{"po"}, Categories: []string{"all"},
		Namespaced: true, HasGeneration: true,
		New: kind.New[corev1.Pod](), NewList: kind.New[corev1.PodList](),
		Default:        kind.Adapt(podspec.DefaultPod),
		PrepareCreate:  kind.Adapt(preparePod),
		PrepareUpdate:  kind.AdaptUpdate(func(pod, old *corev1.Pod) { pod.Status = old.Status }),
		Warnings:       podspec.PodWarnings,
		Validate:       kind.AdaptValidate(podspec.ValidatePod),
		ValidateUpdate: kind.AdaptValidateUpdate(validatePodUpdate),
		Fields:         kind.AdaptFields(podFields), FieldPaths: podFieldPaths,
		IndexedFields: []string{"spec.nodeName"},
		Columns: kind.NewColumns("Ready", "Status", "Restarts", "Age", "IP*", "Node*", "Nominated Node*",
			"Readiness Gates*"),
		Row: kind.AdaptRow(podRow), GracePeriod: podGracePeriod,
		Status: kind.NewStatus(copyPodStatus, validatePodStatusUpdate).WithKeptMeta("deletionTimestamp",
			"ownerReferences"),
		Subresources: []string{
			"binding",
			"eviction",
			"log",
			"exec",
			"attach",
			"portforward",
			"proxy",
			"ephemeralcontainers",
			"resize",
		},
	}
}

// preparePod clears the status and sets what is fixed for the life of a pod: its QoS class, and the selectors that
// contain its own labels.
func preparePod(pod *corev1.Pod) {
	mergeLabelKeys(pod)
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: QOSClass(pod)}
	if len(pod.Spec.SchedulingGates) > 0 {
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated,
			Message: "Scheduling is blocked due to non-empty scheduling gates", ObservedGeneration: pod.Generation,
		}}
	}
}

// copyPodStatus retains the QoS class, which cannot be changed.
func copyPodStatus(to, from *corev1.Pod) {
	qos := to.Status.QOSClass
	to.Status = *from.Status.DeepCopy()
	if to.Status.QOSClass == "" {
		to.Status.QOSClass = qos
	}
}

// podFieldPaths holds the places of the fields that podFields returns.
var podFieldPaths = []kind.FieldPath{
	{Name: "spec.hostNetwork", Section: "spec", Member: "hostNetwork", IsBool: true},
	{Name: "spec.nodeName", Section: "spec", Member: "nodeName"},
	{Name: "spec.restartPolicy", Section: "spec", Member: "restartPolicy"},
	{Name: "spec.schedulerName", Section: "spec", Member: "schedulerName"},
	{Name: "spec.serviceAccountName", Section: "spec", Member: "serviceAccountName"},
	{Name: "status.nominatedNodeName", Section: "status", Member: "nominatedNodeName"},
	{Name: "status.phase", Section: "status", Member: "phase"},
	{Name: "status.podIP", Section: "status", Member: "podIP", List: "podIPs", Item: "ip", IsMostlyUnique: true},
}

func podFields(pod *corev1.Pod) fields.Set {
	ip := ""
	if len(pod.Status.PodIPs) > 0 {
		ip = pod.Status.PodIPs[0].IP
	} else {
		ip = pod.Status.PodIP
	}
	return fields.Set{
		"spec.nodeName":            pod.Spec.NodeName,
		"spec.restartPolicy":       string(pod.Spec.RestartPolicy),
		"spec.schedulerName":       pod.Spec.SchedulerName,
		"spec.serviceAccountName":  pod.Spec.ServiceAccountName,
		"spec.hostNetwork":         strconv.FormatBool(pod.Spec.HostNetwork),
		"status.phase":             string(pod.Status.Phase),
		"status.podIP":             ip,
		"status.nominatedNodeName": pod.Status.NominatedNodeName,
	}
}

// podGracePeriod gives the kubelet time to stop the containers. A pod without a node, or one that has finished, has
// nothing to stop.
func podGracePeriod(obj runtime.Object, requested *int64) int64 {
	pod := obj.(*corev1.Pod)
	seconds := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if requested != nil {
		seconds = *requested
	} else if pod.Spec.TerminationGracePeriodSeconds != nil {
		seconds = *pod.Spec.TerminationGracePeriodSeconds
	}
	if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return 0
	}
	if seconds < 0 {
		return 1
	}
	return seconds
}

func podRow(pod *corev1.Pod) []any {
	s := summarize(pod)
	restarts := strconv.Itoa(s.restarts)
	if s.restarts != 0 && !s.lastRestart.IsZero() {
		restarts = fmt.Sprintf("%d (%s ago)", s.restarts, cell.Age(metav1.Time{Time: s.lastRestart}))
	}
	ip := pod.Status.PodIP
	if len(pod.Status.PodIPs) > 0 {
		ip = pod.Status.PodIPs[0].IP
	}
	gates := cell.NoneText
	if total := len(pod.Spec.ReadinessGates); total > 0 {
		met := 0
		for _, gate := range pod.Spec.ReadinessGates {
			for _, c := range pod.Status.Conditions {
				if c.Type == gate.ConditionType && c.Status == corev1.ConditionTrue {
					met++
				}
			}
		}
		gates = fmt.Sprintf("%d/%d", met, total)
	}
	return []any{
		fmt.Sprintf("%d/%d", s.ready, s.total), s.reason, restarts, cell.Age(pod.CreationTimestamp),
		cell.OrNone(ip), cell.OrNone(pod.Spec.NodeName), cell.OrNone(pod.Status.NominatedNodeName), gates,
	}
}
