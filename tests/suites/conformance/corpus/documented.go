package main

// documentedAnswer is what the documentation of a kind states in addition to its schema, or contrary to it. It comes
// from upstream's handwritten validation and upstream's tests, and not from answers of our server.
type documentedAnswer struct {
	isAccepted bool         // the value is valid
	code       string       // code and end of the message of a refusal other than Invalid
	causes     []wrongCause // replace the causes that follow from the schema
}

// missingValue returns the cause for a missing value whose error is not that the field is required.
func missingValue(field, reason, message string) documentedAnswer {
	return documentedAnswer{causes: []wrongCause{{Field: field, Reason: reason, Message: message}}}
}

func invalidValue(field, message string) documentedAnswer {
	return missingValue(field, "FieldValueInvalid", message)
}

func unsupportedValue(field, value, values string) documentedAnswer {
	return missingValue(field, "FieldValueNotSupported", `Unsupported value: "`+value+`": supported values: `+values)
}

const (
	subdomainText = "a lowercase RFC 1123 subdomain must consist of"
	subjectKinds  = `"Group", "ServiceAccount", "User"`
)

// withCause returns a function that adds a cause to those that follow from the schema.
func withCause(field, reason, message string) func(wrongObject) documentedAnswer {
	return func(w wrongObject) documentedAnswer {
		return documentedAnswer{causes: append(w.Causes[:len(w.Causes):len(w.Causes)],
			wrongCause{field, reason, message})}
	}
}

// documentedExceptions are the exceptions by kind, rule and path. Where the rule is that of names, an empty name is
// invalid as any other bad name is, and not missing. An empty value of an enumerated type is not supported.
var documentedExceptions = map[string]any{
	// The group of a resource may be the core group, whose name is empty. A node has no drivers if all are uninstalled.
	// A LimitRange without limits limits nothing.
	"storagemigration.k8s.io/v1/StorageVersionMigration required " +
		"spec.resource.group": documentedAnswer{isAccepted: true},
	"storage.k8s.io/v1/CSINode required spec.drivers": documentedAnswer{isAccepted: true},
	"v1/LimitRange required spec.limits":              documentedAnswer{isAccepted: true},

	"resource.k8s.io/v1/DeviceTaintRule required spec.taint.key": documentedAnswer{causes: []wrongCause{
		{
			"spec.taint.key",
			"FieldValueInvalid",
			"name part must be non-empty",
		}, {"spec.taint.key", "FieldValueInvalid", "name part must consist of"}}},
	"storage.k8s.io/v1/CSIStorageCapacity required storageClassName": invalidValue("storageClassName", subdomainText),
	"storage.k8s.io/v1/VolumeAttachment required spec.nodeName":      invalidValue("spec.nodeName", subdomainText),
	"v1/Endpoints required subsets.0.addresses.0.ip": invalidValue("subsets[0].addresses[0].ip",
		"must be a valid IP address"),

	"certificates.k8s.io/v1/CertificateSigningRequest required spec.request": invalidValue("spec.request",
		"PEM block type must be CERTIFICATE REQUEST"),
	"certificates.k8s.io/v1/ClusterTrustBundle required spec.trustBundle": invalidValue("spec.trustBundle",
		`"<value omitted>": at least one trust anchor must be provided`),
	"certificates.k8s.io/v1/PodCertificateRequest required spec.nodeName": invalidValue("spec.nodeName", subdomainText),
	"certificates.k8s.io/v1/PodCertificateRequest required spec.podName":  invalidValue("spec.podName", subdomainText),
	"certificates.k8s.io/v1/PodCertificateRequest required spec.serviceAccountName": invalidValue(
		"spec.serviceAccountName", subdomainText),
	"certificates.k8s.io/v1/PodCertificateRequest required spec.podUID": invalidValue("spec.podUID",
		"must not be empty"),
	"certificates.k8s.io/v1/PodCertificateRequest required spec.serviceAccountUID": invalidValue(
		"spec.serviceAccountUID", "must not be empty"),
	"certificates.k8s.io/v1/PodCertificateRequest required spec.nodeUID": invalidValue("spec.nodeUID",
		"must not be empty"),
	"certificates.k8s.io/v1/PodCertificateRequest required spec.stubPKCS10Request": invalidValue(
		"spec.stubPKCS10Request", "must be a valid PKCS#10 request"),

	"rbac.authorization.k8s.io/v1/RoleBinding required roleRef.kind": unsupportedValue("roleRef.kind", "",
		`"ClusterRole", "Role"`),
	"rbac.authorization.k8s.io/v1/RoleBinding required subjects.0.kind": unsupportedValue("subjects[0].kind", "",
		subjectKinds),
	"rbac.authorization.k8s.io/v1/ClusterRoleBinding required roleRef.kind": unsupportedValue("roleRef.kind", "",
		`"ClusterRole"`),
	"rbac.authorization.k8s.io/v1/ClusterRoleBinding required subjects.0.kind": unsupportedValue("subjects[0].kind", "",
		subjectKinds),
	"flowcontrol.apiserver.k8s.io/v1/FlowSchema required spec.rules.0.subjects.0.kind": unsupportedValue(
		"spec.rules[0].subjects[0].kind", "", subjectKinds),

	// A definition's name consists of its plural and its group, and one version is the stored version.
	"apiextensions.k8s.io/v1/CustomResourceDefinition required spec.group": withCause("metadata.name",
		"FieldValueInvalid", `must be spec.names.plural+"."+spec.group`),
	"apiextensions.k8s.io/v1/CustomResourceDefinition required spec.names.plural": withCause("metadata.name",
		"FieldValueInvalid", `must be spec.names.plural+"."+spec.group`),
	"apiextensions.k8s.io/v1/CustomResourceDefinition required spec.versions": documentedAnswer{causes: []wrongCause{
		{"spec.versions", "FieldValueInvalid", "must have exactly one version marked as storage version"},
		{"status.storedVersions", "FieldValueInvalid", "must have at least one stored version"}}},
	"apiextensions.k8s.io/v1/CustomResourceDefinition required spec.versions.0.name": invalidValue(
		"spec.versions[0].name", "a DNS-1035 label must consist of"),

	// The maximum number of replicas must not be less than the minimum, which is 1.
	"autoscaling/v1/HorizontalPodAutoscaler required spec.maxReplicas": withCause("spec.maxReplicas",
		"FieldValueInvalid", "must be greater than or equal to `minReplicas`"),
	"autoscaling/v2/HorizontalPodAutoscaler required spec.maxReplicas": withCause("spec.maxReplicas",
		"FieldValueInvalid", "must be greater than or equal to `minReplicas`"),
	"autoscaling/v1/HorizontalPodAutoscaler minimum spec.maxReplicas": withCause("spec.maxReplicas",
		"FieldValueInvalid", "must be greater than or equal to `minReplicas`"),
	"autoscaling/v2/HorizontalPodAutoscaler minimum spec.maxReplicas": withCause("spec.maxReplicas",
		"FieldValueInvalid", "must be greater than or equal to `minReplicas`"),

	// A missing type is also not one of the supported types.
	"autoscaling/v2/HorizontalPodAutoscaler required spec.metrics.0.type": withCause("spec.metrics[0].type",
		"FieldValueNotSupported",
		`Unsupported value: "": supported values: "ContainerResource", "External", "Object", "Pods", "Resource"`),

	"authentication.k8s.io/v1/TokenReview required spec.token": documentedAnswer{
		code: "400 token is required for TokenReview in authentication",
	},

	// Some values belong to other uses of a type, or to versions that no longer exist.
	"apps/v1/StatefulSet enum spec.podManagementPolicy": invalidValue("spec.podManagementPolicy",
		"must be 'OrderedReady' or 'Parallel'"),
	"storage.k8s.io/v1/StorageClass enum reclaimPolicy": unsupportedValue("reclaimPolicy", "Wild",
		`"Delete", "Retain"`),
	"admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration enum webhooks.0.sideEffects": unsupportedValue(
		"webhooks[0].sideEffects", "Wild", `"None", "NoneOnDryRun"`),
	"admissionregistration.k8s.io/v1/MutatingWebhookConfiguration enum webhooks.0.sideEffects": unsupportedValue(
		"webhooks[0].sideEffects", "Wild", `"None", "NoneOnDryRun"`),

	// The owner of a template decides what its pods may do when they end.
	"apps/v1/Deployment enum spec.template.spec.restartPolicy": withCause("spec.template.spec.restartPolicy",
		"FieldValueNotSupported", `supported values: "Always"`),
	"batch/v1/Job enum spec.template.spec.restartPolicy": withCause("spec.template.spec.restartPolicy",
		"FieldValueNotSupported", `Unsupported value: "Wild": supported values: "Never", "OnFailure"`),
	"batch/v1/CronJob enum spec.jobTemplate.spec.template.spec.restartPolicy": withCause(
		"spec.jobTemplate.spec.template.spec.restartPolicy", "FieldValueNotSupported",
		`Unsupported value: "Wild": supported values: "Never", "OnFailure"`),

	// A namespace has its name as a label, and so have the pods of a job.
	"v1/Namespace metadata metadata.name": withCause("metadata.labels", "FieldValueInvalid",
		`Invalid value: "a%b": a valid label must be`),
	"batch/v1/Job metadata metadata.name": withCause("spec.template.labels", "FieldValueInvalid",
		`Invalid value: "a%b": a valid label must be`),

	// Admission comes before the validation of values.
	"v1/Pod enum spec.preemptionPolicy": documentedAnswer{
		code: "403 the string value of PreemptionPolicy (Wild) must not be provided in pod spec; priority admission " +
			"controller computed PreemptLowerPriority from the given PriorityClass name",
	},
}

// applyExceptions returns w, changed by what the documentation states for the path.
func applyExceptions(k *sampleKind, path string, w wrongObject) wrongObject {
	var s documentedAnswer
	switch v := documentedExceptions[k.String()+" "+w.Rule+" "+path].(type) {
	case nil:
		return w
	case documentedAnswer:
		s = v
	case func(wrongObject) documentedAnswer:
		s = v(w)
	}
	switch {
	case s.isAccepted:
		w.Rule, w.Causes = "taken", nil
	case s.code != "":
		w.Refused, w.Causes = s.code, nil
	case len(s.causes) > 0:
		w.Causes = s.causes
	}
	return w
}
