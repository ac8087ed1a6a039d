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

// AdmissionregistrationV1 implements Interface.
func (c *Clientset) AdmissionregistrationV1() AdmissionregistrationV1 {
	return admissionregistrationClient{c.group("admissionregistration.k8s.io", "v1")}
}

type admissionregistrationClient struct{ rest rest.Interface }

func (g admissionregistrationClient) ValidatingAdmissionPolicies() WithStatus[
	*admissionregistrationv1.ValidatingAdmissionPolicy, *admissionregistrationv1.ValidatingAdmissionPolicyList,
] {
	return newObjects[
		*admissionregistrationv1.ValidatingAdmissionPolicy, *admissionregistrationv1.ValidatingAdmissionPolicyList,
	](
		g.rest, "", "validatingadmissionpolicies",
	)
}

// AppsV1 implements Interface.
func (c *Clientset) AppsV1() AppsV1 {
	return appsClient{c.group("apps", "v1")}
}

type appsClient struct{ rest rest.Interface }

func (g appsClient) ControllerRevisions(namespace string) Objects[
	*appsv1.ControllerRevision, *appsv1.ControllerRevisionList,
] {
	return newObjects[*appsv1.ControllerRevision, *appsv1.ControllerRevisionList](g.rest, namespace,
		"controllerrevisions")
}

func (g appsClient) DaemonSets(namespace string) WithStatus[*appsv1.DaemonSet, *appsv1.DaemonSetList] {
	return newObjects[*appsv1.DaemonSet, *appsv1.DaemonSetList](g.rest, namespace, "daemonsets")
}

func (g appsClient) Deployments(namespace string) WithStatus[*appsv1.Deployment, *appsv1.DeploymentList] {
	return newObjects[*appsv1.Deployment, *appsv1.DeploymentList](g.rest, namespace, "deployments")
}

func (g appsClient) ReplicaSets(namespace string) WithStatus[*appsv1.ReplicaSet, *appsv1.ReplicaSetList] {
	return newObjects[*appsv1.ReplicaSet, *appsv1.ReplicaSetList](g.rest, namespace, "replicasets")
}

func (g appsClient) StatefulSets(namespace string) WithStatus[*appsv1.StatefulSet, *appsv1.StatefulSetList] {
	return newObjects[*appsv1.StatefulSet, *appsv1.StatefulSetList](g.rest, namespace, "statefulsets")
}

// AuthenticationV1 implements Interface.
func (c *Clientset) AuthenticationV1() AuthenticationV1 {
	return authenticationClient{c.group("authentication.k8s.io", "v1")}
}

type authenticationClient struct{ rest rest.Interface }

func (g authenticationClient) TokenReviews() Creator[*authenticationv1.TokenReview] {
	return newObjects[*authenticationv1.TokenReview, *authenticationv1.TokenReview](g.rest, "", "tokenreviews")
}

// AuthorizationV1 implements Interface.
func (c *Clientset) AuthorizationV1() AuthorizationV1 {
	return authorizationClient{c.group("authorization.k8s.io", "v1")}
}

type authorizationClient struct{ rest rest.Interface }

func (g authorizationClient) SubjectAccessReviews() Creator[*authorizationv1.SubjectAccessReview] {
	return newObjects[*authorizationv1.SubjectAccessReview, *authorizationv1.SubjectAccessReview](g.rest, "",
		"subjectaccessreviews")
}

// AutoscalingV2 implements Interface.
func (c *Clientset) AutoscalingV2() AutoscalingV2 {
	return autoscalingClient{c.group("autoscaling", "v2")}
}

type autoscalingClient struct{ rest rest.Interface }

func (g autoscalingClient) HorizontalPodAutoscalers(namespace string) WithStatus[
	*autoscalingv2.HorizontalPodAutoscaler, *autoscalingv2.HorizontalPodAutoscalerList,
] {
	return newObjects[*autoscalingv2.HorizontalPodAutoscaler, *autoscalingv2.HorizontalPodAutoscalerList](g.rest,
		namespace, "horizontalpodautoscalers")
}

// BatchV1 implements Interface.
func (c *Clientset) BatchV1() BatchV1 {
	return batchClient{c.group("batch", "v1")}
}

type batchClient struct{ rest rest.Interface }

func (g batchClient) CronJobs(namespace string) WithStatus[*batchv1.CronJob, *batchv1.CronJobList] {
	return newObjects[*batchv1.CronJob, *batchv1.CronJobList](g.rest, namespace, "cronjobs")
}

func (g batchClient) Jobs(namespace string) WithStatus[*batchv1.Job, *batchv1.JobList] {
	return newObjects[*batchv1.Job, *batchv1.JobList](g.rest, namespace, "jobs")
}

// CertificatesV1 implements Interface.
func (c *Clientset) CertificatesV1() CertificatesV1 {
	return certificatesClient{c.group("certificates.k8s.io", "v1")}
}

type certificatesClient struct{ rest rest.Interface }

func (g certificatesClient) CertificateSigningRequests() CertificateSigningRequests {
	return certificateSigningRequests{newObjects[
		*certificatesv1.CertificateSigningRequest, *certificatesv1.CertificateSigningRequestList,
	](g.rest, "", "certificatesigningrequests")}
}

func (g certificatesClient) PodCertificateRequests(namespace string) WithStatus[
	*certificatesv1.PodCertificateRequest, *certificatesv1.PodCertificateRequestList,
] {
	return newObjects[*certificatesv1.PodCertificateRequest, *certificatesv1.PodCertificateRequestList](g.rest,
		namespace, "podcertificaterequests")
}

func (g certificatesClient) ClusterTrustBundles() Objects[
	*certificatesv1.ClusterTrustBundle, *certificatesv1.ClusterTrustBundleList,
] {
	return newObjects[*certificatesv1.ClusterTrustBundle, *certificatesv1.ClusterTrustBundleList](g.rest, "",
		"clustertrustbundles")
}

// CoordinationV1 implements Interface.
func (c *Clientset) CoordinationV1() CoordinationV1 {
	return coordinationClient{c.group("coordination.k8s.io", "v1")}
}

type coordinationClient struct{ rest rest.Interface }

func (g coordinationClient) Leases(namespace string) Objects[*coordinationv1.Lease, *coordinationv1.LeaseList] {
	return newObjects[*coordinationv1.Lease, *coordinationv1.LeaseList](g.rest, namespace, "leases")
}

// CoreV1 implements Interface.
func (c *Clientset) CoreV1() CoreV1 {
	return coreClient{c.group("", "v1")}
}

type coreClient struct{ rest rest.Interface }

func (g coreClient) RESTClient() rest.Interface { return g.rest }

func (g coreClient) ConfigMaps(namespace string) Objects[*corev1.ConfigMap, *corev1.ConfigMapList] {
	return newObjects[*corev1.ConfigMap, *corev1.ConfigMapList](g.rest, namespace, "configmaps")
}

func (g coreClient) Endpoints(namespace string) Objects[*corev1.Endpoints, *corev1.EndpointsList] {
	return newObjects[*corev1.Endpoints, *corev1.EndpointsList](g.rest, namespace, "endpoints")
}

func (g coreClient) Events(namespace string) Objects[*corev1.Event, *corev1.EventList] {
	return newObjects[*corev1.Event, *corev1.EventList](g.rest, namespace, "events")
}

func (g coreClient) Namespaces() Namespaces {
	return namespaces{newObjects[*corev1.Namespace, *corev1.NamespaceList](g.rest, "", "namespaces")}
}

func (g coreClient) Nodes() WithStatus[*corev1.Node, *corev1.NodeList] {
	return newObjects[*corev1.Node, *corev1.NodeList](g.rest, "", "nodes")
}

func (g coreClient) PersistentVolumeClaims(namespace string) WithStatus[
	*corev1.PersistentVolumeClaim, *corev1.PersistentVolumeClaimList,
] {
	return newObjects[*corev1.PersistentVolumeClaim, *corev1.PersistentVolumeClaimList](g.rest, namespace,
		"persistentvolumeclaims")
}

func (g coreClient) PersistentVolumes() WithStatus[*corev1.PersistentVolume, *corev1.PersistentVolumeList] {
	return newObjects[*corev1.PersistentVolume, *corev1.PersistentVolumeList](g.rest, "", "persistentvolumes")
}

func (g coreClient) Pods(namespace string) Pods {
	return pods{newObjects[*corev1.Pod, *corev1.PodList](g.rest, namespace, "pods")}
}

func (g coreClient) ReplicationControllers(namespace string) WithStatus[
	*corev1.ReplicationController, *corev1.ReplicationControllerList,
] {
	return newObjects[*corev1.ReplicationController, *corev1.ReplicationControllerList](g.rest, namespace,
		"replicationcontrollers")
}

func (g coreClient) ResourceQuotas(namespace string) WithStatus[*corev1.ResourceQuota, *corev1.ResourceQuotaList] {
	return newObjects[*corev1.ResourceQuota, *corev1.ResourceQuotaList](g.rest, namespace, "resourcequotas")
}

func (g coreClient) Secrets(namespace string) Collection[*corev1.Secret, *corev1.SecretList] {
	return newObjects[*corev1.Secret, *corev1.SecretList](g.rest, namespace, "secrets")
}

func (g coreClient) ServiceAccounts(namespace string) ServiceAccounts {
	return serviceAccounts{
		newObjects[*corev1.ServiceAccount, *corev1.ServiceAccountList](g.rest, namespace, "serviceaccounts"),
	}
}

func (g coreClient) Services(namespace string) WithStatus[*corev1.Service, *corev1.ServiceList] {
	return newObjects[*corev1.Service, *corev1.ServiceList](g.rest, namespace, "services")
}

// DiscoveryV1 implements Interface.
func (c *Clientset) DiscoveryV1() DiscoveryV1 {
	return discoveryClient{c.group("discovery.k8s.io", "v1")}
}

type discoveryClient struct{ rest rest.Interface }

func (g discoveryClient) EndpointSlices(namespace string) Objects[
	*discoveryv1.EndpointSlice, *discoveryv1.EndpointSliceList,
] {
	return newObjects[*discoveryv1.EndpointSlice, *discoveryv1.EndpointSliceList](g.rest, namespace, "endpointslices")
}

// NetworkingV1 implements Interface.
func (c *Clientset) NetworkingV1() NetworkingV1 {
	return networkingClient{c.group("networking.k8s.io", "v1")}
}

type networkingClient struct{ rest rest.Interface }

func (g networkingClient) IPAddresses() Objects[*networkingv1.IPAddress, *networkingv1.IPAddressList] {
	return newObjects[*networkingv1.IPAddress, *networkingv1.IPAddressList](g.rest, "", "ipaddresses")
}

func (g networkingClient) IngressClasses() Objects[*networkingv1.IngressClass, *networkingv1.IngressClassList] {
	return newObjects[*networkingv1.IngressClass, *networkingv1.IngressClassList](g.rest, "", "ingressclasses")
}

func (g networkingClient) Ingresses(namespace string) WithStatus[*networkingv1.Ingress, *networkingv1.IngressList] {
	return newObjects[*networkingv1.Ingress, *networkingv1.IngressList](g.rest, namespace, "ingresses")
}

func (g networkingClient) NetworkPolicies(namespace string) Objects[
	*networkingv1.NetworkPolicy, *networkingv1.NetworkPolicyList,
] {
	return newObjects[*networkingv1.NetworkPolicy, *networkingv1.NetworkPolicyList](g.rest, namespace,
		"networkpolicies")
}

func (g networkingClient) ServiceCIDRs() WithStatus[*networkingv1.ServiceCIDR, *networkingv1.ServiceCIDRList] {
	return newObjects[*networkingv1.ServiceCIDR, *networkingv1.ServiceCIDRList](g.rest, "", "servicecidrs")
}

// NodeV1 implements Interface.
func (c *Clientset) NodeV1() NodeV1 {
	return nodeClient{c.group("node.k8s.io", "v1")}
}

type nodeClient struct{ rest rest.Interface }

func (g nodeClient) RuntimeClasses() Objects[*nodev1.RuntimeClass, *nodev1.RuntimeClassList] {
	return newObjects[*nodev1.RuntimeClass, *nodev1.RuntimeClassList](g.rest, "", "runtimeclasses")
}

// PolicyV1 implements Interface.
func (c *Clientset) PolicyV1() PolicyV1 {
	return policyClient{c.group("policy", "v1")}
}

type policyClient struct{ rest rest.Interface }

func (g policyClient) PodDisruptionBudgets(namespace string) WithStatus[
	*policyv1.PodDisruptionBudget, *policyv1.PodDisruptionBudgetList,
] {
	return newObjects[*policyv1.PodDisruptionBudget, *policyv1.PodDisruptionBudgetList](g.rest, namespace,
		"poddisruptionbudgets")
}

// RbacV1 implements Interface.
func (c *Clientset) RbacV1() RbacV1 {
	return rbacClient{c.group("rbac.authorization.k8s.io", "v1")}
}

type rbacClient struct{ rest rest.Interface }

func (g rbacClient) ClusterRoles() Objects[*rbacv1.ClusterRole, *rbacv1.ClusterRoleList] {
	return newObjects[*rbacv1.ClusterRole, *rbacv1.ClusterRoleList](g.rest, "", "clusterroles")
}

// ResourceV1 implements Interface.
func (c *Clientset) ResourceV1() ResourceV1 {
	return resourceClient{c.group("resource.k8s.io", "v1")}
}

type resourceClient struct{ rest rest.Interface }

func (g resourceClient) DeviceClasses() Objects[*resourcev1.DeviceClass, *resourcev1.DeviceClassList] {
	return newObjects[*resourcev1.DeviceClass, *resourcev1.DeviceClassList](g.rest, "", "deviceclasses")
}

func (g resourceClient) DeviceTaintRules() WithStatus[*resourcev1.DeviceTaintRule, *resourcev1.DeviceTaintRuleList] {
	return newObjects[*resourcev1.DeviceTaintRule, *resourcev1.DeviceTaintRuleList](g.rest, "", "devicetaintrules")
}

func (g resourceClient) ResourceClaims(namespace string) WithStatus[
	*resourcev1.ResourceClaim, *resourcev1.ResourceClaimList,
] {
	return newObjects[*resourcev1.ResourceClaim, *resourcev1.ResourceClaimList](g.rest, namespace, "resourceclaims")
}

func (g resourceClient) ResourceClaimTemplates(namespace string) Objects[
	*resourcev1.ResourceClaimTemplate, *resourcev1.ResourceClaimTemplateList,
] {
	return newObjects[*resourcev1.ResourceClaimTemplate, *resourcev1.ResourceClaimTemplateList](g.rest, namespace,
		"resourceclaimtemplates")
}

func (g resourceClient) ResourceSlices() Collection[*resourcev1.ResourceSlice, *resourcev1.ResourceSliceList] {
	return newObjects[*resourcev1.ResourceSlice, *resourcev1.ResourceSliceList](g.rest, "", "resourceslices")
}

// StorageV1 implements Interface.
func (c *Clientset) StorageV1() StorageV1 {
	return storageClient{c.group("storage.k8s.io", "v1")}
}

type storageClient struct{ rest rest.Interface }

func (g storageClient) CSIDrivers() Objects[*storagev1.CSIDriver, *storagev1.CSIDriverList] {
	return newObjects[*storagev1.CSIDriver, *storagev1.CSIDriverList](g.rest, "", "csidrivers")
}

func (g storageClient) CSINodes() Objects[*storagev1.CSINode, *storagev1.CSINodeList] {
	return newObjects[*storagev1.CSINode, *storagev1.CSINodeList](g.rest, "", "csinodes")
}

func (g storageClient) CSIStorageCapacities(namespace string) Objects[
	*storagev1.CSIStorageCapacity, *storagev1.CSIStorageCapacityList,
] {
	return newObjects[*storagev1.CSIStorageCapacity, *storagev1.CSIStorageCapacityList](g.rest, namespace,
		"csistoragecapacities")
}

func (g storageClient) StorageClasses() Objects[*storagev1.StorageClass, *storagev1.StorageClassList] {
	return newObjects[*storagev1.StorageClass, *storagev1.StorageClassList](g.rest, "", "storageclasses")
}

func (g storageClient) VolumeAttachments() WithStatus[*storagev1.VolumeAttachment, *storagev1.VolumeAttachmentList] {
	return newObjects[*storagev1.VolumeAttachment, *storagev1.VolumeAttachmentList](g.rest, "", "volumeattachments")
}

func (g storageClient) VolumeAttributesClasses() Objects[
	*storagev1.VolumeAttributesClass, *storagev1.VolumeAttributesClassList,
] {
	return newObjects[*storagev1.VolumeAttributesClass, *storagev1.VolumeAttributesClassList](g.rest, "",
		"volumeattributesclasses")
}

// StoragemigrationV1 implements Interface.
func (c *Clientset) StoragemigrationV1() StoragemigrationV1 {
	return storagemigrationClient{c.group("storagemigration.k8s.io", "v1")}
}

type storagemigrationClient struct{ rest rest.Interface }

func (g storagemigrationClient) StorageVersionMigrations() WithStatus[
	*storagemigrationv1.StorageVersionMigration, *storagemigrationv1.StorageVersionMigrationList,
] {
	return newObjects[*storagemigrationv1.StorageVersionMigration, *storagemigrationv1.StorageVersionMigrationList](
		g.rest, "", "storageversionmigrations",
	)
}
