package gitops

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// HealthState is the state of an object by the rules of kstatus.
type HealthState string

// States. An object is Current if its controller has done what its present spec declares.
const (
	HealthCurrent     HealthState = "Current"
	HealthInProgress  HealthState = "InProgress"
	HealthFailed      HealthState = "Failed"
	HealthTerminating HealthState = "Terminating"
	HealthNotFound    HealthState = "NotFound"
)

// Health returns the state of a live object, and what it waits for unless it is Current. A nil object is NotFound.
func Health(o *unstructured.Unstructured) (HealthState, string) {
	if o == nil {
		return HealthNotFound, "does not exist"
	}
	if o.GetDeletionTimestamp() != nil {
		return HealthTerminating, "is being deleted"
	}
	if observed, ok, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration"); ok &&
		observed < o.GetGeneration() {
		return HealthInProgress, "its controller has not seen the present generation"
	}
	group := o.GroupVersionKind().Group
	for _, k := range kindHealth {
		if k.group == group && k.kind == o.GetKind() {
			return k.health(statusOf{o})
		}
	}
	return genericHealth(statusOf{o})
}

// kindHealth lists the kinds with rules of their own.
var kindHealth = []struct {
	group, kind string
	health      func(statusOf) (HealthState, string)
}{
	{"apps", "Deployment", deploymentHealth},
	{"apps", "StatefulSet", statefulSetHealth},
	{"apps", "DaemonSet", daemonSetHealth},
	{"apps", "ReplicaSet", replicaSetHealth},
	{"", "Pod", podHealth},
	{"", "PersistentVolumeClaim", claimHealth},
	{"", "Service", serviceHealth},
	{"batch", "Job", jobHealth},
	{"policy", "PodDisruptionBudget", budgetHealth},
	{"apiextensions.k8s.io", "CustomResourceDefinition", definitionHealth},
	{"apiregistration.k8s.io", "APIService", apiServiceHealth},
}

// statusOf reads fields of an object.
type statusOf struct{ *unstructured.Unstructured }

// number returns a number, or otherwise if the field does not exist.
func (s statusOf) number(otherwise int64, path ...string) int64 {
	if n, ok, _ := unstructured.NestedInt64(s.Object, path...); ok {
		return n
	}
	return otherwise
}

func (s statusOf) text(path ...string) string {
	text, _, _ := unstructured.NestedString(s.Object, path...)
	return text
}

// condition returns the status and the explanation of a condition. The status is empty if there is no such condition.
func (s statusOf) condition(kind string) (status, explanation string) {
	conditions, _, _ := unstructured.NestedSlice(s.Object, "status", "conditions")
	for _, c := range conditions {
		m, ok := c.(map[string]any)
		if !ok || m["type"] != kind {
			continue
		}
		status, _ = m["status"].(string)
		reason, _ := m["reason"].(string)
		message, _ := m["message"].(string)
		switch {
		case reason == "":
			return status, message
		case message == "":
			return status, reason
		}
		return status, reason + ": " + message
	}
	return "", ""
}

// conditionReason returns the reason of a condition.
func (s statusOf) conditionReason(kind string) string {
	conditions, _, _ := unstructured.NestedSlice(s.Object, "status", "conditions")
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == kind {
			reason, _ := m["reason"].(string)
			return reason
		}
	}
	return ""
}

func genericHealth(s statusOf) (HealthState, string) {
	if status, reason := s.condition("Stalled"); status == "True" {
		return HealthFailed, reason
	}
	if status, reason := s.condition("Reconciling"); status == "True" {
		return HealthInProgress, reason
	}
	if status, reason := s.condition("Ready"); status == "False" || status == "Unknown" {
		return HealthInProgress, "is not ready: " + reason
	}
	return HealthCurrent, ""
}

// replicas returns InProgress if fewer pods than wanted are in a state.
func replicas(current, want int64, what string) (HealthState, string) {
	if current < want {
		return HealthInProgress, fmt.Sprintf("%d of %d pods are %s", current, want, what)
	}
	return HealthCurrent, ""
}

func firstUnhealthy(list ...func() (HealthState, string)) (HealthState, string) {
	for _, f := range list {
		if state, reason := f(); state != HealthCurrent {
			return state, reason
		}
	}
	return HealthCurrent, ""
}

// observed returns InProgress if the controller of a workload has not written its status yet.
func (s statusOf) observed() (HealthState, string) {
	if s.number(0, "status", "observedGeneration") < s.GetGeneration() {
		return HealthInProgress, "its controller has not seen it yet"
	}
	return HealthCurrent, ""
}

func deploymentHealth(s statusOf) (HealthState, string) {
	if s.conditionReason("Progressing") == "ProgressDeadlineExceeded" {
		_, reason := s.condition("Progressing")
		return HealthFailed, reason
	}
	if paused, _, _ := unstructured.NestedBool(s.Object, "spec", "paused"); paused {
		return s.observed() // a paused rollout never ends
	}
	want, updated := s.number(1, "spec", "replicas"), s.number(0, "status", "updatedReplicas")
	return firstUnhealthy(
		s.observed,
		func() (HealthState, string) { return replicas(updated, want, "of the new version") },
		func() (HealthState, string) {
			if old := s.number(0, "status", "replicas") - updated; old > 0 {
				return HealthInProgress, fmt.Sprintf("%d pods of an old version still exist", old)
			}
			return HealthCurrent, ""
		},
		func() (HealthState, string) {
			return replicas(s.number(0, "status", "availableReplicas"), want, "available")
		},
	)
}

func statefulSetHealth(s statusOf) (HealthState, string) {
	want := s.number(1, "spec", "replicas")
	if s.text("spec", "updateStrategy", "type") == "OnDelete" {
		return firstUnhealthy(s.observed, func() (HealthState, string) {
			return replicas(s.number(0, "status", "readyReplicas"), want, "ready")
		})
	}
	partition := s.number(0, "spec", "updateStrategy", "rollingUpdate", "partition")
	return firstUnhealthy(
		s.observed,
		func() (HealthState, string) {
			return replicas(s.number(0, "status", "updatedReplicas"), want-partition, "of the new version")
		},
		func() (HealthState, string) {
			return replicas(s.number(0, "status", "readyReplicas"), want, "ready")
		},
		func() (HealthState, string) {
			if partition == 0 && s.text("status", "currentRevision") != s.text("status", "updateRevision") {
				return HealthInProgress, "pods are being replaced by those of the new version"
			}
			return HealthCurrent, ""
		},
	)
}

func daemonSetHealth(s statusOf) (HealthState, string) {
	want := s.number(0, "status", "desiredNumberScheduled")
	state, reason := firstUnhealthy(s.observed, func() (HealthState, string) {
		return replicas(s.number(0, "status", "numberAvailable"), want, "available")
	})
	if state != HealthCurrent || s.text("spec", "updateStrategy", "type") == "OnDelete" {
		return state, reason
	}
	return replicas(s.number(0, "status", "updatedNumberScheduled"), want, "of the new version")
}

func replicaSetHealth(s statusOf) (HealthState, string) {
	return firstUnhealthy(s.observed, func() (HealthState, string) {
		return replicas(s.number(0, "status", "availableReplicas"), s.number(1, "spec", "replicas"), "available")
	})
}

func podHealth(s statusOf) (HealthState, string) {
	switch phase := s.text("status", "phase"); phase {
	case "Succeeded":
		return HealthCurrent, ""
	case "Failed":
		return HealthFailed, "the pod has failed: " + s.text("status", "reason")
	default:
		if status, reason := s.condition("Ready"); status != "True" {
			return HealthInProgress, fmt.Sprintf("the pod is not ready (%s): %s", phase, reason)
		}
	}
	return HealthCurrent, ""
}

// claimHealth also accepts a claim that waits for a pod, since its pod may be in a later wave.
func claimHealth(s statusOf) (HealthState, string) {
	switch phase := s.text("status", "phase"); phase {
	case "Bound", "Pending", "":
		return HealthCurrent, ""
	default:
		return HealthFailed, "the claim is " + phase
	}
}

func serviceHealth(s statusOf) (HealthState, string) {
	if s.text("spec", "type") != "LoadBalancer" {
		return HealthCurrent, ""
	}
	if addresses, _, _ := unstructured.NestedSlice(s.Object, "status", "loadBalancer", "ingress"); len(addresses) == 0 {
		return HealthInProgress, "it has no address of a load balancer yet"
	}
	return HealthCurrent, ""
}

// jobHealth follows kstatus: a job that has started is Current, since it may run for any time.
func jobHealth(s statusOf) (HealthState, string) {
	if status, reason := s.condition("Failed"); status == "True" {
		return HealthFailed, reason
	}
	if status, _ := s.condition("Complete"); status == "True" {
		return HealthCurrent, ""
	}
	suspended, _, _ := unstructured.NestedBool(s.Object, "spec", "suspend")
	if s.text("status", "startTime") == "" && !suspended {
		return HealthInProgress, "the job has not started"
	}
	return HealthCurrent, ""
}

func budgetHealth(s statusOf) (HealthState, string) {
	return replicas(s.number(0, "status", "currentHealthy"), s.number(0, "status", "desiredHealthy"), "healthy")
}

func definitionHealth(s statusOf) (HealthState, string) {
	if status, reason := s.condition("NamesAccepted"); status == "False" {
		return HealthFailed, reason
	}
	if status, reason := s.condition("Established"); status != "True" {
		return HealthInProgress, "the kind is not served yet " + reason
	}
	return HealthCurrent, ""
}

func apiServiceHealth(s statusOf) (HealthState, string) {
	if status, reason := s.condition("Available"); status != "True" {
		return HealthInProgress, "its server is not available: " + reason
	}
	return HealthCurrent, ""
}
