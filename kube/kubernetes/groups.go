package kubernetes

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/client-go/rest"
)

// The clients of the groups. Each has only the kinds that the project uses.
type (
	AdmissionregistrationV1 interface {
		ValidatingAdmissionPolicies() WithStatus[
			*admissionregistrationv1.ValidatingAdmissionPolicy, *admissionregistrationv1.ValidatingAdmissionPolicyList]
	}
	AppsV1 interface {
		ControllerRevisions(namespace string) Objects[*appsv1.ControllerRevision, *appsv1.ControllerRevisionList]
		DaemonSets(namespace string) WithStatus[*appsv1.DaemonSet, *appsv1.DaemonSetList]
		Deployments(namespace string) WithStatus[*appsv1.Deployment, *appsv1.DeploymentList]
		ReplicaSets(namespace string) WithStatus[*appsv1.ReplicaSet, *appsv1.ReplicaSetList]
		StatefulSets(namespace string) WithStatus[*appsv1.StatefulSet, *appsv1.StatefulSetList]
	}
	AuthenticationV1 interface {
		TokenReviews() Creator[*authenticationv1.TokenReview]
	}
	AuthorizationV1 interface {
		SubjectAccessReviews() Creator[*authorizationv1.SubjectAccessReview]
	}
	AutoscalingV2 interface {
		HorizontalPodAutoscalers(namespace string) WithStatus[
			*autoscalingv2.HorizontalPodAutoscaler, *autoscalingv2.HorizontalPodAutoscalerList]
	}
	BatchV1 interface {
		CronJobs(namespace string) WithStatus[*batchv1.CronJob, *batchv1.CronJobList]
		Jobs(namespace string) WithStatus[*batchv1.Job, *batchv1.JobList]
	}
	CertificatesV1 interface {
		CertificateSigningRequests() CertificateSigningRequests
		PodCertificateRequests(namespace string) WithStatus[
			*certificatesv1.PodCertificateRequest, *certificatesv1.PodCertificateRequestList]
		ClusterTrustBundles() Objects[*certificatesv1.ClusterTrustBundle, *certificatesv1.ClusterTrustBundleList]
	}
	CoordinationV1 interface {
		Leases(namespace string) Objects[*coordinationv1.Lease, *coordinationv1.LeaseList]
	}
	CoreV1 interface {
		RESTClient() rest.Interface
		ConfigMaps(namespace string) Objects[*corev1.ConfigMap, *corev1.ConfigMapList]
		Endpoints(namespace string) Objects[*corev1.Endpoints, *corev1.EndpointsList]
		Events(namespace string) Objects[*corev1.Event, *corev1.EventList]
		Namespaces() Namespaces
		Nodes() WithStatus[*corev1.Node, *corev1.NodeList]
		PersistentVolumeClaims(namespace string) WithStatus[
			*corev1.PersistentVolumeClaim, *corev1.PersistentVolumeClaimList]
		PersistentVolumes() WithStatus[*corev1.PersistentVolume, *corev1.PersistentVolumeList]
		Pods(namespace string) Pods
		ReplicationControllers(namespace string) WithStatus[
			*corev1.ReplicationController, *corev1.ReplicationControllerList]
		ResourceQuotas(namespace string) WithStatus[*corev1.ResourceQuota, *corev1.ResourceQuotaList]
		Secrets(namespace string) Collection[*corev1.Secret, *corev1.SecretList]
		ServiceAccounts(namespace string) ServiceAccounts
		Services(namespace string) WithStatus[*corev1.Service, *corev1.ServiceList]
	}
	DiscoveryV1 interface {
		EndpointSlices(namespace string) Objects[*discoveryv1.EndpointSlice, *discoveryv1.EndpointSliceList]
	}
	NetworkingV1 interface {
		IPAddresses() Objects[*networkingv1.IPAddress, *networkingv1.IPAddressList]
		IngressClasses() Objects[*networkingv1.IngressClass, *networkingv1.IngressClassList]
		Ingresses(namespace string) WithStatus[*networkingv1.Ingress, *networkingv1.IngressList]
		NetworkPolicies(namespace string) Objects[*networkingv1.NetworkPolicy, *networkingv1.NetworkPolicyList]
		ServiceCIDRs() WithStatus[*networkingv1.ServiceCIDR, *networkingv1.ServiceCIDRList]
	}
	NodeV1 interface {
		RuntimeClasses() Objects[*nodev1.RuntimeClass, *nodev1.RuntimeClassList]
	}
	PolicyV1 interface {
		PodDisruptionBudgets(namespace string) WithStatus[
			*policyv1.PodDisruptionBudget, *policyv1.PodDisruptionBudgetList]
	}
	RbacV1 interface {
		ClusterRoles() Objects[*rbacv1.ClusterRole, *rbacv1.ClusterRoleList]
	}
	ResourceV1 interface {
		DeviceClasses() Objects[*resourcev1.DeviceClass, *resourcev1.DeviceClassList]
		DeviceTaintRules() WithStatus[*resourcev1.DeviceTaintRule, *resourcev1.DeviceTaintRuleList]
		ResourceClaims(namespace string) WithStatus[*resourcev1.ResourceClaim, *resourcev1.ResourceClaimList]
		ResourceClaimTemplates(namespace string) Objects[
			*resourcev1.ResourceClaimTemplate, *resourcev1.ResourceClaimTemplateList]
		ResourceSlices() Collection[*resourcev1.ResourceSlice, *resourcev1.ResourceSliceList]
	}
	StorageV1 interface {
		CSIDrivers() Objects[*storagev1.CSIDriver, *storagev1.CSIDriverList]
		CSINodes() Objects[*storagev1.CSINode, *storagev1.CSINodeList]
		CSIStorageCapacities(namespace string) Objects[*storagev1.CSIStorageCapacity, *storagev1.CSIStorageCapacityList]
		StorageClasses() Objects[*storagev1.StorageClass, *storagev1.StorageClassList]
		VolumeAttachments() WithStatus[*storagev1.VolumeAttachment, *storagev1.VolumeAttachmentList]
		VolumeAttributesClasses() Objects[*storagev1.VolumeAttributesClass, *storagev1.VolumeAttributesClassList]
	}
	StoragemigrationV1 interface {
		StorageVersionMigrations() WithStatus[
			*storagemigrationv1.StorageVersionMigration, *storagemigrationv1.StorageVersionMigrationList]
	}
)
