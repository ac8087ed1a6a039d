package informers

import (
	admissionlisters "k8s.io/client-go/listers/admissionregistration/v1"
	appslisters "k8s.io/client-go/listers/apps/v1"
	autoscalinglisters "k8s.io/client-go/listers/autoscaling/v2"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"
	coordinationlisters "k8s.io/client-go/listers/coordination/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	rbaclisters "k8s.io/client-go/listers/rbac/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	storagemigrationlisters "k8s.io/client-go/listers/storagemigration/v1"
)

// ConfigMaps returns the informer of ConfigMaps.
func ConfigMaps(f *Factory) TypedInformer[corelisters.ConfigMapLister] {
	return newTypedInformer(f, configMaps, corelisters.NewConfigMapLister)
}

// Endpoints returns the informer of Endpoints.
func Endpoints(f *Factory) TypedInformer[corelisters.EndpointsLister] {
	return newTypedInformer(f, endpoints, corelisters.NewEndpointsLister)
}

// Namespaces returns the informer of Namespaces.
func Namespaces(f *Factory) TypedInformer[corelisters.NamespaceLister] {
	return newTypedInformer(f, namespaces, corelisters.NewNamespaceLister)
}

// Nodes returns the informer of Nodes.
func Nodes(f *Factory) TypedInformer[corelisters.NodeLister] {
	return newTypedInformer(f, nodes, corelisters.NewNodeLister)
}

// PersistentVolumes returns the informer of PersistentVolumes.
func PersistentVolumes(f *Factory) TypedInformer[corelisters.PersistentVolumeLister] {
	return newTypedInformer(f, persistentVolumes, corelisters.NewPersistentVolumeLister)
}

// PersistentVolumeClaims returns the informer of PersistentVolumeClaims.
func PersistentVolumeClaims(f *Factory) TypedInformer[corelisters.PersistentVolumeClaimLister] {
	return newTypedInformer(f, persistentVolumeClaims, corelisters.NewPersistentVolumeClaimLister)
}

// Pods returns the informer of Pods.
func Pods(f *Factory) TypedInformer[corelisters.PodLister] {
	return newTypedInformer(f, pods, corelisters.NewPodLister)
}

// ReplicationControllers returns the informer of ReplicationControllers.
func ReplicationControllers(f *Factory) TypedInformer[corelisters.ReplicationControllerLister] {
	return newTypedInformer(f, replicationControllers, corelisters.NewReplicationControllerLister)
}

// ResourceQuotas returns the informer of ResourceQuotas.
func ResourceQuotas(f *Factory) TypedInformer[corelisters.ResourceQuotaLister] {
	return newTypedInformer(f, resourceQuotas, corelisters.NewResourceQuotaLister)
}

// Secrets returns the informer of Secrets.
func Secrets(f *Factory) TypedInformer[corelisters.SecretLister] {
	return newTypedInformer(f, secrets, corelisters.NewSecretLister)
}

// ServiceAccounts returns the informer of ServiceAccounts.
func ServiceAccounts(f *Factory) TypedInformer[corelisters.ServiceAccountLister] {
	return newTypedInformer(f, serviceAccounts, corelisters.NewServiceAccountLister)
}

// Services returns the informer of Services.
func Services(f *Factory) TypedInformer[corelisters.ServiceLister] {
	return newTypedInformer(f, services, corelisters.NewServiceLister)
}

// ValidatingAdmissionPolicies returns the informer of ValidatingAdmissionPolicies.
func ValidatingAdmissionPolicies(f *Factory) TypedInformer[admissionlisters.ValidatingAdmissionPolicyLister] {
	return newTypedInformer(f, validatingAdmissionPolicies, admissionlisters.NewValidatingAdmissionPolicyLister)
}

// ControllerRevisions returns the informer of ControllerRevisions.
func ControllerRevisions(f *Factory) TypedInformer[appslisters.ControllerRevisionLister] {
	return newTypedInformer(f, controllerRevisions, appslisters.NewControllerRevisionLister)
}

// DaemonSets returns the informer of DaemonSets.
func DaemonSets(f *Factory) TypedInformer[appslisters.DaemonSetLister] {
	return newTypedInformer(f, daemonSets, appslisters.NewDaemonSetLister)
}

// Deployments returns the informer of Deployments.
func Deployments(f *Factory) TypedInformer[appslisters.DeploymentLister] {
	return newTypedInformer(f, deployments, appslisters.NewDeploymentLister)
}

// ReplicaSets returns the informer of ReplicaSets.
func ReplicaSets(f *Factory) TypedInformer[appslisters.ReplicaSetLister] {
	return newTypedInformer(f, replicaSets, appslisters.NewReplicaSetLister)
}

// StatefulSets returns the informer of StatefulSets.
func StatefulSets(f *Factory) TypedInformer[appslisters.StatefulSetLister] {
	return newTypedInformer(f, statefulSets, appslisters.NewStatefulSetLister)
}

// HorizontalPodAutoscalers returns the informer of HorizontalPodAutoscalers.
func HorizontalPodAutoscalers(f *Factory) TypedInformer[autoscalinglisters.HorizontalPodAutoscalerLister] {
	return newTypedInformer(f, horizontalPodAutoscalers, autoscalinglisters.NewHorizontalPodAutoscalerLister)
}

// CronJobs returns the informer of CronJobs.
func CronJobs(f *Factory) TypedInformer[batchlisters.CronJobLister] {
	return newTypedInformer(f, cronJobs, batchlisters.NewCronJobLister)
}

// Jobs returns the informer of Jobs.
func Jobs(f *Factory) TypedInformer[batchlisters.JobLister] {
	return newTypedInformer(f, jobs, batchlisters.NewJobLister)
}

// CertificateSigningRequests returns the informer of CertificateSigningRequests.
func CertificateSigningRequests(f *Factory) TypedInformer[certificateslisters.CertificateSigningRequestLister] {
	return newTypedInformer(f, certificateSigningRequests, certificateslisters.NewCertificateSigningRequestLister)
}

// PodCertificateRequests returns the informer of PodCertificateRequests.
func PodCertificateRequests(f *Factory) TypedInformer[certificateslisters.PodCertificateRequestLister] {
	return newTypedInformer(f, podCertificateRequests, certificateslisters.NewPodCertificateRequestLister)
}

// Leases returns the informer of Leases.
func Leases(f *Factory) TypedInformer[coordinationlisters.LeaseLister] {
	return newTypedInformer(f, leases, coordinationlisters.NewLeaseLister)
}

// EndpointSlices returns the informer of EndpointSlices.
func EndpointSlices(f *Factory) TypedInformer[discoverylisters.EndpointSliceLister] {
	return newTypedInformer(f, endpointSlices, discoverylisters.NewEndpointSliceLister)
}

// IPAddresses returns the informer of IPAddresses.
func IPAddresses(f *Factory) TypedInformer[networkinglisters.IPAddressLister] {
	return newTypedInformer(f, ipAddresses, networkinglisters.NewIPAddressLister)
}

// Ingresses returns the informer of Ingresses.
func Ingresses(f *Factory) TypedInformer[networkinglisters.IngressLister] {
	return newTypedInformer(f, ingresses, networkinglisters.NewIngressLister)
}

// IngressClasses returns the informer of IngressClasses.
func IngressClasses(f *Factory) TypedInformer[networkinglisters.IngressClassLister] {
	return newTypedInformer(f, ingressClasses, networkinglisters.NewIngressClassLister)
}

// NetworkPolicies returns the informer of NetworkPolicies.
func NetworkPolicies(f *Factory) TypedInformer[networkinglisters.NetworkPolicyLister] {
	return newTypedInformer(f, networkPolicies, networkinglisters.NewNetworkPolicyLister)
}

// ServiceCIDRs returns the informer of ServiceCIDRs.
func ServiceCIDRs(f *Factory) TypedInformer[networkinglisters.ServiceCIDRLister] {
	return newTypedInformer(f, serviceCIDRs, networkinglisters.NewServiceCIDRLister)
}

// PodDisruptionBudgets returns the informer of PodDisruptionBudgets.
func PodDisruptionBudgets(f *Factory) TypedInformer[policylisters.PodDisruptionBudgetLister] {
	return newTypedInformer(f, podDisruptionBudgets, policylisters.NewPodDisruptionBudgetLister)
}

// ClusterRoles returns the informer of ClusterRoles.
func ClusterRoles(f *Factory) TypedInformer[rbaclisters.ClusterRoleLister] {
	return newTypedInformer(f, clusterRoles, rbaclisters.NewClusterRoleLister)
}

// DeviceClasses returns the informer of DeviceClasses.
func DeviceClasses(f *Factory) TypedInformer[resourcelisters.DeviceClassLister] {
	return newTypedInformer(f, deviceClasses, resourcelisters.NewDeviceClassLister)
}

// DeviceTaintRules returns the informer of DeviceTaintRules.
func DeviceTaintRules(f *Factory) TypedInformer[resourcelisters.DeviceTaintRuleLister] {
	return newTypedInformer(f, deviceTaintRules, resourcelisters.NewDeviceTaintRuleLister)
}

// ResourceClaims returns the informer of ResourceClaims.
func ResourceClaims(f *Factory) TypedInformer[resourcelisters.ResourceClaimLister] {
	return newTypedInformer(f, resourceClaims, resourcelisters.NewResourceClaimLister)
}

// ResourceClaimTemplates returns the informer of ResourceClaimTemplates.
func ResourceClaimTemplates(f *Factory) TypedInformer[resourcelisters.ResourceClaimTemplateLister] {
	return newTypedInformer(f, resourceClaimTemplates, resourcelisters.NewResourceClaimTemplateLister)
}

// ResourceSlices returns the informer of ResourceSlices.
func ResourceSlices(f *Factory) TypedInformer[resourcelisters.ResourceSliceLister] {
	return newTypedInformer(f, resourceSlices, resourcelisters.NewResourceSliceLister)
}

// CSIDrivers returns the informer of CSIDrivers.
func CSIDrivers(f *Factory) TypedInformer[storagelisters.CSIDriverLister] {
	return newTypedInformer(f, csiDrivers, storagelisters.NewCSIDriverLister)
}

// CSINodes returns the informer of CSINodes.
func CSINodes(f *Factory) TypedInformer[storagelisters.CSINodeLister] {
	return newTypedInformer(f, csiNodes, storagelisters.NewCSINodeLister)
}

// CSIStorageCapacities returns the informer of CSIStorageCapacities.
func CSIStorageCapacities(f *Factory) TypedInformer[storagelisters.CSIStorageCapacityLister] {
	return newTypedInformer(f, csiStorageCapacities, storagelisters.NewCSIStorageCapacityLister)
}

// StorageClasses returns the informer of StorageClasses.
func StorageClasses(f *Factory) TypedInformer[storagelisters.StorageClassLister] {
	return newTypedInformer(f, storageClasses, storagelisters.NewStorageClassLister)
}

// VolumeAttachments returns the informer of VolumeAttachments.
func VolumeAttachments(f *Factory) TypedInformer[storagelisters.VolumeAttachmentLister] {
	return newTypedInformer(f, volumeAttachments, storagelisters.NewVolumeAttachmentLister)
}

// VolumeAttributesClasses returns the informer of VolumeAttributesClasses.
func VolumeAttributesClasses(f *Factory) TypedInformer[storagelisters.VolumeAttributesClassLister] {
	return newTypedInformer(f, volumeAttributesClasses, storagelisters.NewVolumeAttributesClassLister)
}

// StorageVersionMigrations returns the informer of StorageVersionMigrations.
func StorageVersionMigrations(f *Factory) TypedInformer[storagemigrationlisters.StorageVersionMigrationLister] {
	return newTypedInformer(f, storageVersionMigrations, storagemigrationlisters.NewStorageVersionMigrationLister)
}
