package main

// said is what the documentation of a kind says where it says more or other than its schema: upstream's validation by
// hand, and its tests. Nothing here is taken from what our server answers.
type said struct {
	taken  bool    // the value is good
	code   string  // another refusal than that of what is invalid: a code, and what the message ends with
	causes []cause // in place of those that the schema has
}

// wanting is a value of which something else is said than that it is required.
func wanting(field, reason, message string) said {
	return said{causes: []cause{{Field: field, Reason: reason, Message: message}}}
}

func invalidFor(field, message string) said { return wanting(field, "FieldValueInvalid", message) }

func unsupported(field, value, values string) said {
	return wanting(field, "FieldValueNotSupported", `Unsupported value: "`+value+`": supported values: `+values)
}

const (
	subdomain = "a lowercase RFC 1123 subdomain must consist of"
	subjects  = `"Group", "ServiceAccount", "User"`
)

// also is a cause besides that which the schema has.
func also(field, reason, message string) func(wrong) said {
	return func(w wrong) said {
		return said{causes: append(w.Causes[:len(w.Causes):len(w.Causes)], cause{field, reason, message})}
	}
}

// sayings are by kind, rule and path. An empty name is as bad as any other bad name where the rule is that of names,
// and not missing; an empty value is one of those that a switch does not have.
var sayings = map[string]any{
	// The group of a resource may be the core's, which is empty; a node has no drivers any more when all are
	// uninstalled; a range of no limits limits nothing.
	"storagemigration.k8s.io/v1/StorageVersionMigration required spec.resource.group": said{taken: true},
	"storage.k8s.io/v1/CSINode required spec.drivers":                                 said{taken: true},
	"v1/LimitRange required spec.limits":                                              said{taken: true},

	"resource.k8s.io/v1/DeviceTaintRule required spec.taint.key": said{causes: []cause{
		{
			"spec.taint.key",
			"FieldValueInvalid",
			"name part must be non-empty",
		}, {"spec.taint.key", "FieldValueInvalid", "name part must consist of"}}},
	"storage.k8s.io/v1/CSIStorageCapacity required storageClassName": invalidFor("storageClassName", subdomain),
	"storage.k8s.io/v1/VolumeAttachment required spec.nodeName":      invalidFor("spec.nodeName", subdomain),
	"v1/Endpoints required subsets.0.addresses.0.ip": invalidFor(
		"subsets[0].addresses[0].ip",
		"must be a valid IP address",
	),

	"certificates.k8s.io/v1/CertificateSigningRequest required spec.request": invalidFor(
		"spec.request",
		"PEM block type must be CERTIFICATE REQUEST",
	),
	"certificates.k8s.io/v1/ClusterTrustBundle required spec.trustBundle": invalidFor(
		"spec.trustBundle",
		`"<value omitted>": at least one trust anchor must be provided`,
	),
	"certificates.k8s.io/v1/PodCertificateRequest required spec.nodeName": invalidFor(
		"spec.nodeName",
		subdomain,
	),
	"certificates.k8s.io/v1/PodCertificateRequest required spec.podName": invalidFor(
		"spec.podName",
		subdomain,
	),
	"certificates.k8s.io/v1/PodCertificateRequest required spec.serviceAccountName": invalidFor(
		"spec.serviceAccountName",
		subdomain,
	),
	"certificates.k8s.io/v1/PodCertificateRequest required spec.podUID": invalidFor(
		"spec.podUID",
		"must not be empty",
	),
	"certificates.k8s.io/v1/PodCertificateRequest required spec.serviceAccountUID": invalidFor(
		"spec.serviceAccountUID",
		"must not be empty",
	),
	"certificates.k8s.io/v1/PodCertificateRequest required spec.nodeUID": invalidFor(
		"spec.nodeUID",
		"must not be empty",
	),
	"certificates.k8s.io/v1/PodCertificateRequest required spec.stubPKCS10Request": invalidFor(
		"spec.stubPKCS10Request",
		"must be a valid PKCS#10 request",
	),

	"rbac.authorization.k8s.io/v1/RoleBinding required roleRef.kind": unsupported(
		"roleRef.kind",
		"",
		`"ClusterRole", "Role"`,
	),
	"rbac.authorization.k8s.io/v1/RoleBinding required subjects.0.kind": unsupported(
		"subjects[0].kind",
		"",
		subjects,
	),
	"rbac.authorization.k8s.io/v1/ClusterRoleBinding required roleRef.kind": unsupported(
		"roleRef.kind",
		"",
		`"ClusterRole"`,
	),
	"rbac.authorization.k8s.io/v1/ClusterRoleBinding required subjects.0.kind": unsupported(
		"subjects[0].kind",
		"",
		subjects,
	),
	"flowcontrol.apiserver.k8s.io/v1/FlowSchema required spec.rules.0.subjects.0.kind": unsupported(
		"spec.rules[0].subjects[0].kind",
		"",
		subjects,
	),

	// A definition's name is made of its plural and its group, and one version is stored.
	"apiextensions.k8s.io/v1/CustomResourceDefinition required spec.group": also(
		"metadata.name",
		"FieldValueInvalid",
		`must be spec.names.plural+"."+spec.group`,
	),
	"apiextensions.k8s.io/v1/CustomResourceDefinition required spec.names.plural": also(
		"metadata.name",
		"FieldValueInvalid",
		`must be spec.names.plural+"."+spec.group`,
	),
	"apiextensions.k8s.io/v1/CustomResourceDefinition required spec.versions": said{causes: []cause{
		{"spec.versions", "FieldValueInvalid", "must have exactly one version marked as storage version"},
		{"status.storedVersions", "FieldValueInvalid", "must have at least one stored version"}}},
	"apiextensions.k8s.io/v1/CustomResourceDefinition required spec.versions.0.name": invalidFor(
		"spec.versions[0].name",
		"a DNS-1035 label must consist of",
	),

	// The most replicas are no fewer than the least, which are one.
	"autoscaling/v1/HorizontalPodAutoscaler required spec.maxReplicas": also(
		"spec.maxReplicas",
		"FieldValueInvalid",
		"must be greater than or equal to `minReplicas`",
	),
	"autoscaling/v2/HorizontalPodAutoscaler required spec.maxReplicas": also(
		"spec.maxReplicas",
		"FieldValueInvalid",
		"must be greater than or equal to `minReplicas`",
	),
	"autoscaling/v1/HorizontalPodAutoscaler minimum spec.maxReplicas": also(
		"spec.maxReplicas",
		"FieldValueInvalid",
		"must be greater than or equal to `minReplicas`",
	),
	"autoscaling/v2/HorizontalPodAutoscaler minimum spec.maxReplicas": also(
		"spec.maxReplicas",
		"FieldValueInvalid",
		"must be greater than or equal to `minReplicas`",
	),

	// A type that is missing is none of those that there are, either.
	"autoscaling/v2/HorizontalPodAutoscaler required spec.metrics.0.type": also(
		"spec.metrics[0].type",
		"FieldValueNotSupported",
		`Unsupported value: "": supported values: "ContainerResource", "External", "Object", "Pods", "Resource"`,
	),

	"authentication.k8s.io/v1/TokenReview required spec.token": said{
		code: "400 token is required for TokenReview in authentication",
	},

	// Some values are of other uses of a type, or of versions that are gone.
	"apps/v1/StatefulSet enum spec.podManagementPolicy": invalidFor(
		"spec.podManagementPolicy",
		"must be 'OrderedReady' or 'Parallel'",
	),
	"storage.k8s.io/v1/StorageClass enum reclaimPolicy": unsupported(
		"reclaimPolicy",
		"Wild",
		`"Delete", "Retain"`,
	),
	"admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration enum webhooks.0.sideEffects": unsupported(
		"webhooks[0].sideEffects",
		"Wild",
		`"None", "NoneOnDryRun"`,
	),
	"admissionregistration.k8s.io/v1/MutatingWebhookConfiguration enum webhooks.0.sideEffects": unsupported(
		"webhooks[0].sideEffects",
		"Wild",
		`"None", "NoneOnDryRun"`,
	),

	// What pods of a template are to do when they end is for its owner to say.
	"apps/v1/Deployment enum spec.template.spec.restartPolicy": also(
		"spec.template.spec.restartPolicy",
		"FieldValueNotSupported",
		`supported values: "Always"`,
	),
	"batch/v1/Job enum spec.template.spec.restartPolicy": also(
		"spec.template.spec.restartPolicy",
		"FieldValueNotSupported",
		`Unsupported value: "Wild": supported values: "Never", "OnFailure"`,
	),
	"batch/v1/CronJob enum spec.jobTemplate.spec.template.spec.restartPolicy": also(
		"spec.jobTemplate.spec.template.spec.restartPolicy",
		"FieldValueNotSupported",
		`Unsupported value: "Wild": supported values: "Never", "OnFailure"`,
	),

	// A namespace has its name as a label, and so have a job's pods.
	"v1/Namespace metadata metadata.name": also(
		"metadata.labels",
		"FieldValueInvalid",
		`Invalid value: "a%b": a valid label must be`,
	),
	"batch/v1/Job metadata metadata.name": also(
		"spec.template.labels",
		"FieldValueInvalid",
		`Invalid value: "a%b": a valid label must be`,
	),

	// Admission comes before values are looked at.
	"v1/Pod enum spec.preemptionPolicy": said{
		code: "403 the string value of PreemptionPolicy (Wild) must not be provided in pod spec; priority admission " +
			"controller computed PreemptLowerPriority from the given PriorityClass name",
	},
}

// documented returns what the documentation of what is at a path says instead of what follows from its schema.
func documented(k *kind, path string, w wrong) wrong {
	var s said
	switch v := sayings[k.String()+" "+w.Rule+" "+path].(type) {
	case nil:
		return w
	case said:
		s = v
	case func(wrong) said:
		s = v(w)
	}
	switch {
	case s.taken:
		w.Rule, w.Causes = "taken", nil
	case s.code != "":
		w.Refused, w.Causes = s.code, nil
	case len(s.causes) > 0:
		w.Causes = s.causes
	}
	return w
}
