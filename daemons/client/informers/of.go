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
func ConfigMaps(f *Factory) Of[corelisters.ConfigMapLister] {
	return of(f, configMaps, corelisters.NewConfigMapLister)
}

// Endpoints returns the informer of Endpoints.
func Endpoints(f *Factory) Of[corelisters.EndpointsLister] {
	return of(f, endpoints, corelisters.NewEndpointsLister)
}

// Namespaces returns the informer of Namespaces.
func Namespaces(f *Factory) Of[corelisters.NamespaceLister] {
	return of(f, namespaces, corelisters.NewNamespaceLister)
}

// Nodes returns the informer of Nodes.
func Nodes(f *Factory) Of[corelisters.NodeLister] {
	return of(f, nodes, corelisters.NewNodeLister)
}

// PersistentVolumes returns the informer of PersistentVolumes.
func PersistentVolumes(f *Factory) Of[corelisters.PersistentVolumeLister] {
	return of(f, persistentVolumes, corelisters.NewPersistentVolumeLister)
}

// PersistentVolumeClaims returns the informer of PersistentVolumeClaims.
func PersistentVolumeClaims(f *Factory) Of[corelisters.PersistentVolumeClaimLister] {
	return of(f, persistentVolumeClaims, corelisters.NewPersistentVolumeClaimLister)
}

// Pods returns the informer of Pods.
func Pods(f *Factory) Of[corelisters.PodLister] {
	return of(f, pods, corelisters.NewPodLister)
}

// ReplicationControllers returns the informer of ReplicationControllers.
func ReplicationControllers(f *Factory) Of[corelisters.ReplicationControllerLister] {
	return of(f, replicationControllers, corelisters.NewReplicationControllerLister)
}

// ResourceQuotas returns the informer of ResourceQuotas.
func ResourceQuotas(f *Factory) Of[corelisters.ResourceQuotaLister] {
	return of(f, resourceQuotas, corelisters.NewResourceQuotaLister)
}

// Secrets returns the informer of Secrets.
func Secrets(f *Factory) Of[corelisters.SecretLister] {
	return of(f, secrets, corelisters.NewSecretLister)
}

// ServiceAccounts returns the informer of ServiceAccounts.
func ServiceAccounts(f *Factory) Of[corelisters.ServiceAccountLister] {
	return of(f, serviceAccounts, corelisters.NewServiceAccountLister)
}

// Services returns the informer of Services.
func Services(f *Factory) Of[corelisters.ServiceLister] {
	return of(f, services, corelisters.NewServiceLister)
}

// ValidatingAdmissionPolicies returns the informer of ValidatingAdmissionPolicies.
func ValidatingAdmissionPolicies(f *Factory) Of[admissionlisters.ValidatingAdmissionPolicyLister] {
	return of(f, validatingAdmissionPolicies, admissionlisters.NewValidatingAdmissionPolicyLister)
}

// ControllerRevisions returns the informer of ControllerRevisions.
func ControllerRevisions(f *Factory) Of[appslisters.ControllerRevisionLister] {
	return of(f, controllerRevisions, appslisters.NewControllerRevisionLister)
}

// DaemonSets returns the informer of DaemonSets.
func DaemonSets(f *Factory) Of[appslisters.DaemonSetLister] {
	return of(f, daemonSets, appslisters.NewDaemonSetLister)
}

// Deployments returns the informer of Deployments.
func Deployments(f *Factory) Of[appslisters.DeploymentLister] {
	return of(f, deployments, appslisters.NewDeploymentLister)
}

// ReplicaSets returns the informer of ReplicaSets.
func ReplicaSets(f *Factory) Of[appslisters.ReplicaSetLister] {
	return of(f, replicaSets, appslisters.NewReplicaSetLister)
}

// StatefulSets returns the informer of StatefulSets.
func StatefulSets(f *Factory) Of[appslisters.StatefulSetLister] {
	return of(f, statefulSets, appslisters.NewStatefulSetLister)
}

// HorizontalPodAutoscalers returns the informer of HorizontalPodAutoscalers.
func HorizontalPodAutoscalers(f *Factory) Of[autoscalinglisters.HorizontalPodAutoscalerLister] {
	return of(f, horizontalPodAutoscalers, autoscalinglisters.NewHorizontalPodAutoscalerLister)
}

// CronJobs returns the informer of CronJobs.
func CronJobs(f *Factory) Of[batchlisters.CronJobLister] {
	return of(f, cronJobs, batchlisters.NewCronJobLister)
}

// Jobs returns the informer of Jobs.
func Jobs(f *Factory) Of[batchlisters.JobLister] {
	return of(f, jobs, batchlisters.NewJobLister)
}

// CertificateSigningRequests returns the informer of CertificateSigningRequests.
func CertificateSigningRequests(f *Factory) Of[certificateslisters.CertificateSigningRequestLister] {
	return of(f, certificateSigningRequests, certificateslisters.NewCertificateSigningRequestLister)
}

// PodCertificateRequests returns the informer of PodCertificateRequests.
func PodCertificateRequests(f *Factory) Of[certificateslisters.PodCertificateRequestLister] {
	return of(f, podCertificateRequests, certificateslisters.NewPodCertificateRequestLister)
}

// Leases returns the informer of Leases.
func Leases(f *Factory) Of[coordinationlisters.LeaseLister] {
	return of(f, leases, coordinationlisters.NewLeaseLister)
}

// EndpointSlices returns the informer of EndpointSlices.
func EndpointSlices(f *Factory) Of[discoverylisters.EndpointSliceLister] {
	return of(f, endpointSlices, discoverylisters.NewEndpointSliceLister)
}

// IPAddresses returns the informer of IPAddresses.
func IPAddresses(f *Factory) Of[networkinglisters.IPAddressLister] {
	return of(f, ipAddresses, networkinglisters.NewIPAddressLister)
}

// Ingresses returns the informer of Ingresses.
func Ingresses(f *Factory) Of[networkinglisters.IngressLister] {
	return of(f, ingresses, networkinglisters.NewIngressLister)
}

// IngressClasses returns the informer of IngressClasses.
func IngressClasses(f *Factory) Of[networkinglisters.IngressClassLister] {
	return of(f, ingressClasses, networkinglisters.NewIngressClassLister)
}

// NetworkPolicies returns the informer of NetworkPolicies.
func NetworkPolicies(f *Factory) Of[networkinglisters.NetworkPolicyLister] {
	return of(f, networkPolicies, networkinglisters.NewNetworkPolicyLister)
}

// ServiceCIDRs returns the informer of ServiceCIDRs.
func ServiceCIDRs(f *Factory) Of[networkinglisters.ServiceCIDRLister] {
	return of(f, serviceCIDRs, networkinglisters.NewServiceCIDRLister)
}

// PodDisruptionBudgets returns the informer of PodDisruptionBudgets.
func PodDisruptionBudgets(f *Factory) Of[policylisters.PodDisruptionBudgetLister] {
	return of(f, podDisruptionBudgets, policylisters.NewPodDisruptionBudgetLister)
}

// ClusterRoles returns the informer of ClusterRoles.
func ClusterRoles(f *Factory) Of[rbaclisters.ClusterRoleLister] {
	return of(f, clusterRoles, rbaclisters.NewClusterRoleLister)
}

// DeviceClasses returns the informer of DeviceClasses.
func DeviceClasses(f *Factory) Of[resourcelisters.DeviceClassLister] {
	return of(f, deviceClasses, resourcelisters.NewDeviceClassLister)
}

// DeviceTaintRules returns the informer of DeviceTaintRules.
func DeviceTaintRules(f *Factory) Of[resourcelisters.DeviceTaintRuleLister] {
	return of(f, deviceTaintRules, resourcelisters.NewDeviceTaintRuleLister)
}

// ResourceClaims returns the informer of ResourceClaims.
func ResourceClaims(f *Factory) Of[resourcelisters.ResourceClaimLister] {
	return of(f, resourceClaims, resourcelisters.NewResourceClaimLister)
}

// ResourceClaimTemplates returns the informer of ResourceClaimTemplates.
func ResourceClaimTemplates(f *Factory) Of[resourcelisters.ResourceClaimTemplateLister] {
	return of(f, resourceClaimTemplates, resourcelisters.NewResourceClaimTemplateLister)
}

// ResourceSlices returns the informer of ResourceSlices.
func ResourceSlices(f *Factory) Of[resourcelisters.ResourceSliceLister] {
	return of(f, resourceSlices, resourcelisters.NewResourceSliceLister)
}

// CSIDrivers returns the informer of CSIDrivers.
func CSIDrivers(f *Factory) Of[storagelisters.CSIDriverLister] {
	return of(f, csiDrivers, storagelisters.NewCSIDriverLister)
}

// CSINodes returns the informer of CSINodes.
func CSINodes(f *Factory) Of[storagelisters.CSINodeLister] {
	return of(f, csiNodes, storagelisters.NewCSINodeLister)
}

// CSIStorageCapacities returns the informer of CSIStorageCapacities.
func CSIStorageCapacities(f *Factory) Of[storagelisters.CSIStorageCapacityLister] {
	return of(f, csiStorageCapacities, storagelisters.NewCSIStorageCapacityLister)
}

// StorageClasses returns the informer of StorageClasses.
func StorageClasses(f *Factory) Of[storagelisters.StorageClassLister] {
	return of(f, storageClasses, storagelisters.NewStorageClassLister)
}

// VolumeAttachments returns the informer of VolumeAttachments.
func VolumeAttachments(f *Factory) Of[storagelisters.VolumeAttachmentLister] {
	return of(f, volumeAttachments, storagelisters.NewVolumeAttachmentLister)
}

// VolumeAttributesClasses returns the informer of VolumeAttributesClasses.
func VolumeAttributesClasses(f *Factory) Of[storagelisters.VolumeAttributesClassLister] {
	return of(f, volumeAttributesClasses, storagelisters.NewVolumeAttributesClassLister)
}

// StorageVersionMigrations returns the informer of StorageVersionMigrations.
func StorageVersionMigrations(f *Factory) Of[storagemigrationlisters.StorageVersionMigrationLister] {
	return of(f, storageVersionMigrations, storagemigrationlisters.NewStorageVersionMigrationLister)
}
