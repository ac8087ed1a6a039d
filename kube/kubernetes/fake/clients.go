package fake

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
	typedadmissionregistration "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	typedapps "k8s.io/client-go/kubernetes/typed/apps/v1"
	typedauthentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	typedauthorization "k8s.io/client-go/kubernetes/typed/authorization/v1"
	typedautoscaling "k8s.io/client-go/kubernetes/typed/autoscaling/v2"
	typedbatch "k8s.io/client-go/kubernetes/typed/batch/v1"
	typedcertificates "k8s.io/client-go/kubernetes/typed/certificates/v1"
	typedcoordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	typeddiscovery "k8s.io/client-go/kubernetes/typed/discovery/v1"
	typednetworking "k8s.io/client-go/kubernetes/typed/networking/v1"
	typednode "k8s.io/client-go/kubernetes/typed/node/v1"
	typedpolicy "k8s.io/client-go/kubernetes/typed/policy/v1"
	typedrbac "k8s.io/client-go/kubernetes/typed/rbac/v1"
	typedresource "k8s.io/client-go/kubernetes/typed/resource/v1"
	typedstorage "k8s.io/client-go/kubernetes/typed/storage/v1"
	typedstoragemigration "k8s.io/client-go/kubernetes/typed/storagemigration/v1"
	"k8s.io/client-go/rest"

	"clusterctl/kube/kubernetes"
)

// AdmissionregistrationV1 implements kubernetes.Interface.
func (c *Clientset) AdmissionregistrationV1() kubernetes.AdmissionregistrationV1 {
	return admissionregistrationClient{c.Clientset.AdmissionregistrationV1()}
}

type admissionregistrationClient struct {
	client typedadmissionregistration.AdmissionregistrationV1Interface
}

func (g admissionregistrationClient) ValidatingAdmissionPolicies() kubernetes.WithStatus[
	*admissionregistrationv1.ValidatingAdmissionPolicy, *admissionregistrationv1.ValidatingAdmissionPolicyList] {
	return g.client.ValidatingAdmissionPolicies()
}

// AppsV1 implements kubernetes.Interface.
func (c *Clientset) AppsV1() kubernetes.AppsV1 {
	return appsClient{c.Clientset.AppsV1()}
}

type appsClient struct{ client typedapps.AppsV1Interface }

func (g appsClient) ControllerRevisions(namespace string) kubernetes.Objects[
	*appsv1.ControllerRevision, *appsv1.ControllerRevisionList] {
	return g.client.ControllerRevisions(namespace)
}

func (g appsClient) DaemonSets(namespace string) kubernetes.WithStatus[*appsv1.DaemonSet, *appsv1.DaemonSetList] {
	return g.client.DaemonSets(namespace)
}

func (g appsClient) Deployments(namespace string) kubernetes.WithStatus[*appsv1.Deployment, *appsv1.DeploymentList] {
	return g.client.Deployments(namespace)
}

func (g appsClient) ReplicaSets(namespace string) kubernetes.WithStatus[*appsv1.ReplicaSet, *appsv1.ReplicaSetList] {
	return g.client.ReplicaSets(namespace)
}

func (g appsClient) StatefulSets(namespace string) kubernetes.WithStatus[*appsv1.StatefulSet, *appsv1.StatefulSetList] {
	return g.client.StatefulSets(namespace)
}

// AuthenticationV1 implements kubernetes.Interface.
func (c *Clientset) AuthenticationV1() kubernetes.AuthenticationV1 {
	return authenticationClient{c.Clientset.AuthenticationV1()}
}

type authenticationClient struct {
	client typedauthentication.AuthenticationV1Interface
}

func (g authenticationClient) TokenReviews() kubernetes.Creator[*authenticationv1.TokenReview] {
	return g.client.TokenReviews()
}

// AuthorizationV1 implements kubernetes.Interface.
func (c *Clientset) AuthorizationV1() kubernetes.AuthorizationV1 {
	return authorizationClient{c.Clientset.AuthorizationV1()}
}

type authorizationClient struct {
	client typedauthorization.AuthorizationV1Interface
}

func (g authorizationClient) SubjectAccessReviews() kubernetes.Creator[*authorizationv1.SubjectAccessReview] {
	return g.client.SubjectAccessReviews()
}

// AutoscalingV2 implements kubernetes.Interface.
func (c *Clientset) AutoscalingV2() kubernetes.AutoscalingV2 {
	return autoscalingClient{c.Clientset.AutoscalingV2()}
}

type autoscalingClient struct {
	client typedautoscaling.AutoscalingV2Interface
}

func (g autoscalingClient) HorizontalPodAutoscalers(namespace string) kubernetes.WithStatus[
	*autoscalingv2.HorizontalPodAutoscaler, *autoscalingv2.HorizontalPodAutoscalerList] {
	return g.client.HorizontalPodAutoscalers(namespace)
}

// BatchV1 implements kubernetes.Interface.
func (c *Clientset) BatchV1() kubernetes.BatchV1 {
	return batchClient{c.Clientset.BatchV1()}
}

type batchClient struct{ client typedbatch.BatchV1Interface }

func (g batchClient) CronJobs(namespace string) kubernetes.WithStatus[*batchv1.CronJob, *batchv1.CronJobList] {
	return g.client.CronJobs(namespace)
}

func (g batchClient) Jobs(namespace string) kubernetes.WithStatus[*batchv1.Job, *batchv1.JobList] {
	return g.client.Jobs(namespace)
}

// CertificatesV1 implements kubernetes.Interface.
func (c *Clientset) CertificatesV1() kubernetes.CertificatesV1 {
	return certificatesClient{c.Clientset.CertificatesV1()}
}

type certificatesClient struct {
	client typedcertificates.CertificatesV1Interface
}

func (g certificatesClient) CertificateSigningRequests() kubernetes.CertificateSigningRequests {
	return g.client.CertificateSigningRequests()
}

func (g certificatesClient) PodCertificateRequests(namespace string) kubernetes.WithStatus[
	*certificatesv1.PodCertificateRequest, *certificatesv1.PodCertificateRequestList] {
	return g.client.PodCertificateRequests(namespace)
}

func (g certificatesClient) ClusterTrustBundles() kubernetes.Objects[
	*certificatesv1.ClusterTrustBundle, *certificatesv1.ClusterTrustBundleList] {
	return g.client.ClusterTrustBundles()
}

// CoordinationV1 implements kubernetes.Interface.
func (c *Clientset) CoordinationV1() kubernetes.CoordinationV1 {
	return coordinationClient{c.Clientset.CoordinationV1()}
}

type coordinationClient struct {
	client typedcoordination.CoordinationV1Interface
}

func (g coordinationClient) Leases(namespace string) kubernetes.Objects[
	*coordinationv1.Lease, *coordinationv1.LeaseList] {
	return g.client.Leases(namespace)
}

// CoreV1 implements kubernetes.Interface.
func (c *Clientset) CoreV1() kubernetes.CoreV1 {
	return coreClient{c.Clientset.CoreV1()}
}

type coreClient struct{ client typedcore.CoreV1Interface }

func (g coreClient) RESTClient() rest.Interface { return g.client.RESTClient() }

func (g coreClient) ConfigMaps(namespace string) kubernetes.Objects[*corev1.ConfigMap, *corev1.ConfigMapList] {
	return g.client.ConfigMaps(namespace)
}

func (g coreClient) Endpoints(namespace string) kubernetes.Objects[*corev1.Endpoints, *corev1.EndpointsList] {
	return g.client.Endpoints(namespace)
}

func (g coreClient) Events(namespace string) kubernetes.Objects[*corev1.Event, *corev1.EventList] {
	return g.client.Events(namespace)
}

func (g coreClient) Namespaces() kubernetes.Namespaces {
	return g.client.Namespaces()
}

func (g coreClient) Nodes() kubernetes.WithStatus[*corev1.Node, *corev1.NodeList] {
	return g.client.Nodes()
}

func (g coreClient) PersistentVolumeClaims(namespace string) kubernetes.WithStatus[
	*corev1.PersistentVolumeClaim, *corev1.PersistentVolumeClaimList] {
	return g.client.PersistentVolumeClaims(namespace)
}

func (g coreClient) PersistentVolumes() kubernetes.WithStatus[*corev1.PersistentVolume, *corev1.PersistentVolumeList] {
	return g.client.PersistentVolumes()
}

func (g coreClient) Pods(namespace string) kubernetes.Pods {
	return g.client.Pods(namespace)
}

func (g coreClient) ReplicationControllers(namespace string) kubernetes.WithStatus[
	*corev1.ReplicationController, *corev1.ReplicationControllerList] {
	return g.client.ReplicationControllers(namespace)
}

func (g coreClient) ResourceQuotas(namespace string) kubernetes.WithStatus[
	*corev1.ResourceQuota, *corev1.ResourceQuotaList] {
	return g.client.ResourceQuotas(namespace)
}

func (g coreClient) Secrets(namespace string) kubernetes.Collection[*corev1.Secret, *corev1.SecretList] {
	return g.client.Secrets(namespace)
}

func (g coreClient) ServiceAccounts(namespace string) kubernetes.ServiceAccounts {
	return g.client.ServiceAccounts(namespace)
}

func (g coreClient) Services(namespace string) kubernetes.WithStatus[*corev1.Service, *corev1.ServiceList] {
	return g.client.Services(namespace)
}

// DiscoveryV1 implements kubernetes.Interface.
func (c *Clientset) DiscoveryV1() kubernetes.DiscoveryV1 {
	return discoveryClient{c.Clientset.DiscoveryV1()}
}

type discoveryClient struct {
	client typeddiscovery.DiscoveryV1Interface
}

func (g discoveryClient) EndpointSlices(namespace string) kubernetes.Objects[
	*discoveryv1.EndpointSlice, *discoveryv1.EndpointSliceList] {
	return g.client.EndpointSlices(namespace)
}

// NetworkingV1 implements kubernetes.Interface.
func (c *Clientset) NetworkingV1() kubernetes.NetworkingV1 {
	return networkingClient{c.Clientset.NetworkingV1()}
}

type networkingClient struct {
	client typednetworking.NetworkingV1Interface
}

func (g networkingClient) IPAddresses() kubernetes.Objects[*networkingv1.IPAddress, *networkingv1.IPAddressList] {
	return g.client.IPAddresses()
}

func (g networkingClient) IngressClasses() kubernetes.Objects[
	*networkingv1.IngressClass, *networkingv1.IngressClassList] {
	return g.client.IngressClasses()
}

func (g networkingClient) Ingresses(namespace string) kubernetes.WithStatus[
	*networkingv1.Ingress, *networkingv1.IngressList] {
	return g.client.Ingresses(namespace)
}

func (g networkingClient) NetworkPolicies(namespace string) kubernetes.Objects[
	*networkingv1.NetworkPolicy, *networkingv1.NetworkPolicyList] {
	return g.client.NetworkPolicies(namespace)
}

func (g networkingClient) ServiceCIDRs() kubernetes.WithStatus[
	*networkingv1.ServiceCIDR, *networkingv1.ServiceCIDRList] {
	return g.client.ServiceCIDRs()
}

// NodeV1 implements kubernetes.Interface.
func (c *Clientset) NodeV1() kubernetes.NodeV1 {
	return nodeClient{c.Clientset.NodeV1()}
}

type nodeClient struct{ client typednode.NodeV1Interface }

func (g nodeClient) RuntimeClasses() kubernetes.Objects[*nodev1.RuntimeClass, *nodev1.RuntimeClassList] {
	return g.client.RuntimeClasses()
}

// PolicyV1 implements kubernetes.Interface.
func (c *Clientset) PolicyV1() kubernetes.PolicyV1 {
	return policyClient{c.Clientset.PolicyV1()}
}

type policyClient struct{ client typedpolicy.PolicyV1Interface }

func (g policyClient) PodDisruptionBudgets(namespace string) kubernetes.WithStatus[
	*policyv1.PodDisruptionBudget, *policyv1.PodDisruptionBudgetList] {
	return g.client.PodDisruptionBudgets(namespace)
}

// RbacV1 implements kubernetes.Interface.
func (c *Clientset) RbacV1() kubernetes.RbacV1 {
	return rbacClient{c.Clientset.RbacV1()}
}

type rbacClient struct{ client typedrbac.RbacV1Interface }

func (g rbacClient) ClusterRoles() kubernetes.Objects[*rbacv1.ClusterRole, *rbacv1.ClusterRoleList] {
	return g.client.ClusterRoles()
}

// ResourceV1 implements kubernetes.Interface.
func (c *Clientset) ResourceV1() kubernetes.ResourceV1 {
	return resourceClient{c.Clientset.ResourceV1()}
}

type resourceClient struct {
	client typedresource.ResourceV1Interface
}

func (g resourceClient) DeviceClasses() kubernetes.Objects[*resourcev1.DeviceClass, *resourcev1.DeviceClassList] {
	return g.client.DeviceClasses()
}

func (g resourceClient) DeviceTaintRules() kubernetes.WithStatus[
	*resourcev1.DeviceTaintRule, *resourcev1.DeviceTaintRuleList] {
	return g.client.DeviceTaintRules()
}

func (g resourceClient) ResourceClaims(namespace string) kubernetes.WithStatus[
	*resourcev1.ResourceClaim, *resourcev1.ResourceClaimList] {
	return g.client.ResourceClaims(namespace)
}

func (g resourceClient) ResourceClaimTemplates(namespace string) kubernetes.Objects[
	*resourcev1.ResourceClaimTemplate, *resourcev1.ResourceClaimTemplateList] {
	return g.client.ResourceClaimTemplates(namespace)
}

func (g resourceClient) ResourceSlices() kubernetes.Collection[
	*resourcev1.ResourceSlice, *resourcev1.ResourceSliceList] {
	return g.client.ResourceSlices()
}

// StorageV1 implements kubernetes.Interface.
func (c *Clientset) StorageV1() kubernetes.StorageV1 {
	return storageClient{c.Clientset.StorageV1()}
}

type storageClient struct {
	client typedstorage.StorageV1Interface
}

func (g storageClient) CSIDrivers() kubernetes.Objects[*storagev1.CSIDriver, *storagev1.CSIDriverList] {
	return g.client.CSIDrivers()
}

func (g storageClient) CSINodes() kubernetes.Objects[*storagev1.CSINode, *storagev1.CSINodeList] {
	return g.client.CSINodes()
}

func (g storageClient) CSIStorageCapacities(namespace string) kubernetes.Objects[
	*storagev1.CSIStorageCapacity, *storagev1.CSIStorageCapacityList] {
	return g.client.CSIStorageCapacities(namespace)
}

func (g storageClient) StorageClasses() kubernetes.Objects[*storagev1.StorageClass, *storagev1.StorageClassList] {
	return g.client.StorageClasses()
}

func (g storageClient) VolumeAttachments() kubernetes.WithStatus[
	*storagev1.VolumeAttachment, *storagev1.VolumeAttachmentList] {
	return g.client.VolumeAttachments()
}

func (g storageClient) VolumeAttributesClasses() kubernetes.Objects[
	*storagev1.VolumeAttributesClass, *storagev1.VolumeAttributesClassList] {
	return g.client.VolumeAttributesClasses()
}

// StoragemigrationV1 implements kubernetes.Interface.
func (c *Clientset) StoragemigrationV1() kubernetes.StoragemigrationV1 {
	return storagemigrationClient{c.Clientset.StoragemigrationV1()}
}

type storagemigrationClient struct {
	client typedstoragemigration.StoragemigrationV1Interface
}

func (g storagemigrationClient) StorageVersionMigrations() kubernetes.WithStatus[
	*storagemigrationv1.StorageVersionMigration, *storagemigrationv1.StorageVersionMigrationList] {
	return g.client.StorageVersionMigrations()
}
