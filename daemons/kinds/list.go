package kinds

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/auth"
	"clusterctl/daemons/kinds/core"
	"clusterctl/daemons/kinds/device"
	"clusterctl/daemons/kinds/extensions"
	"clusterctl/daemons/kinds/flowcontrol"
	"clusterctl/daemons/kinds/network"
	"clusterctl/daemons/kinds/storage"
	"clusterctl/daemons/kinds/workload"
)

// All returns the declarations of all served kinds in the order of discovery. It returns a new list at each call. A
// kind without ValidateUpdate uses Validate for updates.
func All() []*Kind {
	all := []*Kind{
		// core
		core.Pods(), core.PodTemplates(), workload.ReplicationControllers(), network.Services(), network.Endpoints(),
		core.Nodes(), core.Namespaces(), core.ConfigMaps(), core.Secrets(), core.ServiceAccounts(), core.Events(),
		storage.PersistentVolumes(), storage.PersistentVolumeClaims(), core.LimitRanges(), core.ResourceQuotas(),
		core.Bindings(), core.ComponentStatuses(),

		// apps, batch, autoscaling
		workload.Deployments(), workload.ReplicaSets(), workload.StatefulSets(), workload.DaemonSets(),
		workload.ControllerRevisions(),
		workload.Jobs(), workload.CronJobs(), workload.HorizontalPodAutoscalers(),

		// authentication and authorization
		auth.Roles(), auth.RoleBindings(), auth.ClusterRoles(), auth.ClusterRoleBindings(),
		auth.CertificateSigningRequests(),
		auth.ClusterTrustBundles(), auth.PodCertificateRequests(),
		auth.TokenReviews(), auth.SelfSubjectReviews(), auth.SubjectAccessReviews(), auth.LocalSubjectAccessReviews(),
		auth.SelfSubjectAccessReviews(), auth.SelfSubjectRulesReviews(),

		// network
		network.EndpointSlices(), network.Ingresses(), network.IngressClasses(), network.NetworkPolicies(),
		network.IPAddresses(), network.ServiceCIDRs(),

		// storage
		storage.StorageClasses(), storage.VolumeAttributesClasses(), storage.CSIDrivers(), storage.CSINodes(),
		storage.VolumeAttachments(),
		storage.CSIStorageCapacities(),

		// devices
		device.DeviceClasses(), device.ResourceClaims(), device.ResourceClaimTemplates(), device.ResourceSlices(),
		device.DeviceTaintRules(),

		// the rest
		core.Leases(), workload.PodDisruptionBudgets(), core.PriorityClasses(), core.RuntimeClasses(),
		extensions.StorageVersionMigrations(),
		extensions.CustomResourceDefinitions(),
		flowcontrol.FlowSchemas(), flowcontrol.PriorityLevelConfigurations(),
		extensions.APIServices(), extensions.MutatingWebhookConfigurations(),
		extensions.ValidatingWebhookConfigurations(),
		extensions.ValidatingAdmissionPolicies(), extensions.ValidatingAdmissionPolicyBindings(),
		extensions.MutatingAdmissionPolicies(),
		extensions.MutatingAdmissionPolicyBindings(),
	}
	for _, k := range all {
		if validate := k.Validate; k.ValidateUpdate == nil && validate != nil {
			k.ValidateUpdate = func(obj, _ runtime.Object) field.ErrorList { return validate(obj) }
		}
	}
	return all
}
