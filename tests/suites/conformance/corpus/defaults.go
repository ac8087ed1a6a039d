package main

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// pathValues are values by their paths.
type pathValues = map[string]any

// defaultValues returns the default values that a kind's sample receives for unset fields, from the documentation of
// the fields and upstream's defaulting of the version. They are the defaults before admission and allocation. The
// client that writes the object owns these fields too.
func defaultValues(k *sampleKind) pathValues {
	out := pathValues{}
	for path, v := range kindDefaults[k.String()] {
		if i := strings.LastIndex(path, "/"); i >= 0 { // a default inside an object that the sample must have
			if valueAt(k.withMetadata(), path[:i]) == nil {
				continue
			}
			path = path[:i] + "." + path[i+1:]
		}
		out[path] = v
	}
	if spec := podSpecs[k.Kind]; spec != "" {
		maps.Copy(out, podDefaults(k, spec))
	}
	maps.DeleteFunc(out, func(path string, _ any) bool { return valueAt(k.withMetadata(), path) != nil })
	if k.Kind == "Namespace" {
		labels, _ := valueAt(k.withMetadata(), "metadata.labels").(pathValues)
		out["metadata.labels"] = withValue(labels, "kubernetes.io/metadata.name", "x")
	}
	return out
}

// podSpecs are the paths of the pod specs in the kinds.
var podSpecs = map[string]string{
	"Pod": "spec", "PodTemplate": "template.spec", "ReplicationController": "spec.template.spec",
	"ReplicaSet": "spec.template.spec", "Deployment": "spec.template.spec",
	"StatefulSet": "spec.template.spec", "DaemonSet": "spec.template.spec", "Job": "spec.template.spec",
	"CronJob": "spec.jobTemplate.spec.template.spec",
}

func podDefaults(k *sampleKind, spec string) pathValues {
	out := pathValues{
		spec + ".restartPolicy": "Always", spec + ".dnsPolicy": "ClusterFirst", spec +
			".schedulerName": "default-scheduler",
		spec + ".securityContext": pathValues{}, spec + ".terminationGracePeriodSeconds": 30,
		spec + ".containers.0.imagePullPolicy":          "Always", // the sample has no image tag
		spec + ".containers.0.terminationMessagePath":   "/dev/termination-log",
		spec + ".containers.0.terminationMessagePolicy": "File",
	}
	if image, _ := valueAt(k.withMetadata(), spec+".containers.0.image").(string); strings.Contains(image, ":") {
		out[spec+".containers.0.imagePullPolicy"] = "IfNotPresent"
	}
	if valueAt(k.withMetadata(), spec+".containers.0.ports.0") != nil {
		out[spec+".containers.0.ports.0.protocol"] = "TCP"
	}
	if k.Kind == "Pod" {
		out["spec.enableServiceLinks"] = true
	}
	return out
}

const rbacGroup = "rbac.authorization.k8s.io"

var kindDefaults = map[string]pathValues{
	"apps/v1/Deployment": {"spec.replicas": 1, "spec.revisionHistoryLimit": 10, "spec.progressDeadlineSeconds": 600,
		"spec.strategy": pathValues{
			"type":          "RollingUpdate",
			"rollingUpdate": pathValues{"maxSurge": "25%", "maxUnavailable": "25%"},
		}},
	"apps/v1/ReplicaSet": {"spec.replicas": 1},
	"apps/v1/StatefulSet": {
		"spec.replicas":             1,
		"spec.revisionHistoryLimit": 10,
		"spec.podManagementPolicy":  "OrderedReady",
		"spec.updateStrategy": pathValues{
			"type":          "RollingUpdate",
			"rollingUpdate": pathValues{"partition": 0, "maxUnavailable": 1},
		},
		"spec.persistentVolumeClaimRetentionPolicy": pathValues{"whenDeleted": "Retain", "whenScaled": "Retain"},
	},
	// The generation of the template is no longer a field. It is kept as an annotation.
	"apps/v1/DaemonSet": {
		"spec.revisionHistoryLimit": 10,
		"metadata.annotations":      pathValues{"deprecated.daemonset.template.generation": "0"},
		"spec.updateStrategy": pathValues{
			"type":          "RollingUpdate",
			"rollingUpdate": pathValues{"maxSurge": 0, "maxUnavailable": 1},
		},
	},
	"batch/v1/Job": {
		"spec.completions":          1,
		"spec.parallelism":          1,
		"spec.backoffLimit":         6,
		"spec.completionMode":       "NonIndexed",
		"spec.suspend":              false,
		"spec.podReplacementPolicy": "TerminatingOrFailed",
		"spec.manualSelector":       false,
	},
	"batch/v1/CronJob": {
		"spec.concurrencyPolicy":          "Allow",
		"spec.suspend":                    false,
		"spec.successfulJobsHistoryLimit": 3,
		"spec.failedJobsHistoryLimit":     1,
	},

	"autoscaling/v1/HorizontalPodAutoscaler": {"spec.minReplicas": 1},
	"autoscaling/v2/HorizontalPodAutoscaler": {"spec.minReplicas": 1},

	"v1/Secret": {"type": "Opaque"},
	"v1/ReplicationController": {
		"spec.replicas":   1,
		"metadata.labels": pathValues{"a": "b"},
		"spec.selector":   pathValues{"a": "b"},
	},
	"v1/Endpoints": {"subsets.0.ports.0/protocol": "TCP"},
	"v1/PersistentVolume": {
		"spec.volumeMode":                    "Filesystem",
		"spec.persistentVolumeReclaimPolicy": "Retain",
		"spec.hostPath/type":                 "",
	},
	"v1/PersistentVolumeClaim": {"spec.volumeMode": "Filesystem"},
	"v1/Service": {
		"spec.sessionAffinity":               "None",
		"spec.internalTrafficPolicy":         "Cluster",
		"spec.externalTrafficPolicy":         "Cluster",
		"spec.allocateLoadBalancerNodePorts": true,
		"spec.ports.0.protocol":              "TCP",
		"spec.ports.0.targetPort":            80,
	},

	"discovery.k8s.io/v1/EndpointSlice":  {"ports.0/protocol": "TCP", "ports.0/name": ""},
	"networking.k8s.io/v1/NetworkPolicy": {"spec.policyTypes": []any{"Ingress"}},
	"networking.k8s.io/v1/IngressClass":  {"spec.parameters/scope": "Cluster"},
	"storage.k8s.io/v1/StorageClass":     {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"},
	"storage.k8s.io/v1/CSIDriver": {
		"spec.attachRequired":       true,
		"spec.podInfoOnMount":       false,
		"spec.storageCapacity":      false,
		"spec.fsGroupPolicy":        "ReadWriteOnceWithFSType",
		"spec.volumeLifecycleModes": []any{"Persistent"},
		"spec.requiresRepublish":    false,
		"spec.seLinuxMount":         false,
	},
	"scheduling.k8s.io/v1/PriorityClass":           {"preemptionPolicy": "PreemptLowerPriority"},
	"apiregistration.k8s.io/v1/APIService":         {"spec.service/port": 443},
	"rbac.authorization.k8s.io/v1/RoleBinding":     {"roleRef.apiGroup": rbacGroup},
	"certificates.k8s.io/v1/PodCertificateRequest": {"spec.maxExpirationSeconds": 86400},

	"rbac.authorization.k8s.io/v1/ClusterRoleBinding": {
		"roleRef.apiGroup":    rbacGroup,
		"subjects.0.apiGroup": rbacGroup,
	},
	"flowcontrol.apiserver.k8s.io/v1/FlowSchema": {"spec.matchingPrecedence": 1000},
	"flowcontrol.apiserver.k8s.io/v1/PriorityLevelConfiguration": {
		"spec.limited.nominalConcurrencyShares": 30,
		"spec.limited.lendablePercent":          0,
	},
	"apiextensions.k8s.io/v1/CustomResourceDefinition": {
		"spec.names.singular": "widget",
		"spec.names.listKind": "WidgetList",
		"spec.conversion":     pathValues{"strategy": "None"},
	},

	"admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration": webhookDefaults,
	"admissionregistration.k8s.io/v1/MutatingWebhookConfiguration": withValue(webhookDefaults,
		"webhooks.0.reinvocationPolicy", "Never"),
	"admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy": policyDefaults,
	"admissionregistration.k8s.io/v1/MutatingAdmissionPolicy":   policyDefaults,

	"resource.k8s.io/v1/ResourceClaim": {
		"spec.devices.requests.0.exactly.allocationMode": "ExactCount",
		"spec.devices.requests.0.exactly.count":          1,
	},
	"resource.k8s.io/v1/ResourceClaimTemplate": {
		"spec.spec.devices.requests.0.exactly.allocationMode": "ExactCount",
		"spec.spec.devices.requests.0.exactly.count":          1,
	},
	"resource.k8s.io/v1/DeviceTaintRule": {"spec.taint.timeAdded": "2026-01-01T00:00:00Z"},
}

var webhookDefaults = pathValues{
	"webhooks.0.failurePolicy":     "Fail",
	"webhooks.0.matchPolicy":       "Equivalent",
	"webhooks.0.timeoutSeconds":    10,
	"webhooks.0.namespaceSelector": pathValues{},
	"webhooks.0.objectSelector":    pathValues{},
	"webhooks.0.rules.0/scope":     "*",
}

var policyDefaults = pathValues{
	"spec.failurePolicy":                          "Fail",
	"spec.matchConstraints.matchPolicy":           "Equivalent",
	"spec.matchConstraints.namespaceSelector":     pathValues{},
	"spec.matchConstraints.objectSelector":        pathValues{},
	"spec.matchConstraints.resourceRules.0/scope": "*",
}

func withValue(v pathValues, path string, value any) pathValues {
	out := pathValues{}
	maps.Copy(out, v)
	out[path] = value
	return out
}

// variableDefaults are the paths of defaults that depend on the time or on the object's name. The fields are owned, but
// the data does not contain their values.
var variableDefaults = []string{"spec.taint.timeAdded", "metadata.labels", "metadata.annotations"}

// unchangedFields returns the fields that a write to an object does not change: its status, which is written
// separately.
func unchangedFields(k *sampleKind) []string {
	if slices.ContainsFunc(reflect.VisibleFields(k.goType),
		func(f reflect.StructField) bool { return f.Name == "Status" }) {
		return []string{"status"}
	}
	return nil
}
