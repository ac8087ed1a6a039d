package kinds

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// All returns the declarations of all served kinds in the order of discovery. It returns a new list at each call. A
// kind without ValidateUpdate uses Validate for updates.
func All() []*Kind {
	all := []*Kind{
		// core
		pods(), podTemplates(), replicationControllers(), services(), endpoints(),
		nodes(), namespaces(), configMaps(), secrets(), serviceAccounts(), events(),
		persistentVolumes(), persistentVolumeClaims(), limitRanges(), resourceQuotas(), bindings(), componentStatuses(),

		// apps, batch, autoscaling
		deployments(), replicaSets(), statefulSets(), daemonSets(), controllerRevisions(),
		jobs(), cronJobs(), horizontalPodAutoscalers(),

		// authentication and authorization
		roles(), roleBindings(), clusterRoles(), clusterRoleBindings(), certificateSigningRequests(),
		clusterTrustBundles(), podCertificateRequests(),
		tokenReviews(), selfSubjectReviews(), subjectAccessReviews(), localSubjectAccessReviews(),
		selfSubjectAccessReviews(), selfSubjectRulesReviews(),

		// network
		endpointSlices(), ingresses(), ingressClasses(), networkPolicies(), ipAddresses(), serviceCIDRs(),

		// storage
		storageClasses(), volumeAttributesClasses(), csiDrivers(), csiNodes(), volumeAttachments(),
		csiStorageCapacities(),

		// devices
		deviceClasses(), resourceClaims(), resourceClaimTemplates(), resourceSlices(), deviceTaintRules(),

		// the rest
		leases(), podDisruptionBudgets(), priorityClasses(), runtimeClasses(), storageVersionMigrations(),
		customResourceDefinitions(),
		flowSchemas(), priorityLevelConfigurations(),
		apiServices(), mutatingWebhookConfigurations(), validatingWebhookConfigurations(),
		validatingAdmissionPolicies(), validatingAdmissionPolicyBindings(), mutatingAdmissionPolicies(),
		mutatingAdmissionPolicyBindings(),
	}
	for _, k := range all {
		if validate := k.Validate; k.ValidateUpdate == nil && validate != nil {
			k.ValidateUpdate = func(obj, _ runtime.Object) field.ErrorList { return validate(obj) }
		}
	}
	return all
}
