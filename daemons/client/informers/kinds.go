package informers

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"

	"clusterctl/kube/kubernetes"
)

// kinds lists the kinds that ForResource finds.
func kinds() []kind {
	return []kind{
		configMaps, endpoints, namespaces, nodes, persistentVolumes, persistentVolumeClaims, pods,
		replicationControllers, resourceQuotas, secrets, serviceAccounts, services, validatingAdmissionPolicies,
		controllerRevisions, daemonSets, deployments, replicaSets, statefulSets, horizontalPodAutoscalers,
		cronJobs, jobs, certificateSigningRequests, podCertificateRequests, leases, endpointSlices, ipAddresses,
		ingresses, ingressClasses, networkPolicies, serviceCIDRs, podDisruptionBudgets, clusterRoles, deviceClasses,
		deviceTaintRules, resourceClaims, resourceClaimTemplates, resourceSlices, csiDrivers, csiNodes,
		csiStorageCapacities, storageClasses, volumeAttachments, volumeAttributesClasses,
		storageVersionMigrations,
	}
}

var (
	configMaps = kind{corev1.SchemeGroupVersion, "configmaps", &corev1.ConfigMap{},
		func(c kubernetes.Interface, ns string) source { return typedSource(c.CoreV1().ConfigMaps(ns)) }}
	endpoints = kind{corev1.SchemeGroupVersion, "endpoints", &corev1.Endpoints{},
		func(c kubernetes.Interface, ns string) source { return typedSource(c.CoreV1().Endpoints(ns)) }}
	namespaces = kind{corev1.SchemeGroupVersion, "namespaces", &corev1.Namespace{},
		func(c kubernetes.Interface, _ string) source { return typedSource(c.CoreV1().Namespaces()) }}
	nodes = kind{corev1.SchemeGroupVersion, "nodes", &corev1.Node{},
		func(c kubernetes.Interface, _ string) source { return typedSource(c.CoreV1().Nodes()) }}
	persistentVolumes = kind{corev1.SchemeGroupVersion, "persistentvolumes", &corev1.PersistentVolume{},
		func(c kubernetes.Interface, _ string) source { return typedSource(c.CoreV1().PersistentVolumes()) }}
	persistentVolumeClaims = kind{corev1.SchemeGroupVersion, "persistentvolumeclaims",
		&corev1.PersistentVolumeClaim{},
		func(c kubernetes.Interface, ns string) source {
			return typedSource(c.CoreV1().PersistentVolumeClaims(ns))
		}}
	pods = kind{corev1.SchemeGroupVersion, "pods", &corev1.Pod{},
		func(c kubernetes.Interface, ns string) source { return typedSource(c.CoreV1().Pods(ns)) }}
	replicationControllers = kind{corev1.SchemeGroupVersion, "replicationcontrollers",
		&corev1.ReplicationController{},
		func(c kubernetes.Interface, ns string) source {
			return typedSource(c.CoreV1().ReplicationControllers(ns))
		}}
	resourceQuotas = kind{corev1.SchemeGroupVersion, "resourcequotas", &corev1.ResourceQuota{},
		func(c kubernetes.Interface, ns string) source { return typedSource(c.CoreV1().ResourceQuotas(ns)) }}
	secrets = kind{corev1.SchemeGroupVersion, "secrets", &corev1.Secret{},
		func(c kubernetes.Interface, ns string) source { return typedSource(c.CoreV1().Secrets(ns)) }}
	serviceAccounts = kind{corev1.SchemeGroupVersion, "serviceaccounts", &corev1.ServiceAccount{},
		func(c kubernetes.Interface, ns string) source { return typedSource(c.CoreV1().ServiceAccounts(ns)) }}
	services = kind{corev1.SchemeGroupVersion, "services", &corev1.Service{},
		func(c kubernetes.Interface, ns string) source { return typedSource(c.CoreV1().Services(ns)) }}
)

var (
	validatingAdmissionPolicies = kind{admissionv1.SchemeGroupVersion, "validatingadmissionpolicies",
		&admissionv1.ValidatingAdmissionPolicy{},
		func(c kubernetes.Interface, _ string) source {
			return typedSource(c.AdmissionregistrationV1().ValidatingAdmissionPolicies())
		}}
)

var (
	controllerRevisions = kind{appsv1.SchemeGroupVersion, "controllerrevisions", &appsv1.ControllerRevision{},
		func(c kubernetes.Interface, ns string) source { return typedSource(c.AppsV1().ControllerRevisions(ns)) }}
	daemonSets = kind{appsv1.SchemeGroupVersion, "daemonsets", &appsv1.DaemonSet{},
		func(c kubernetes.Interface, ns string) source { return typedSource(c.AppsV1().DaemonSets(ns)) }}
	deployments = kind{appsv1.SchemeGroupVersion, "deployments", &appsv1.Deployment{},
		func(c kubernetes.Interface, ns string) source { return typedSource(c.AppsV1().Deployments(ns)) }}
	replicaSets = kind{appsv1.SchemeGroupVersion, "replicasets", &appsv1.ReplicaSet{},
		func(c kubernetes.Interface, ns string) source { return typedSource(c.AppsV1().ReplicaSets(ns)) }}
	statefulSets = kind{appsv1.SchemeGroupVersion, "statefulsets", &appsv1.StatefulSet{},
		func(c kubernetes.Interface, ns string) source { return typedSource(c.AppsV1().StatefulSets(ns)) }}
)

var (
	horizontalPodAutoscalers = kind{autoscalingv2.SchemeGroupVersion, "horizontalpodautoscalers",
		&autoscalingv2.HorizontalPodAutoscaler{},
		func(c kubernetes.Interface, ns string) source {
			return typedSource(c.AutoscalingV2().HorizontalPodAutoscalers(ns))
		}}
)

var (
	cronJobs = kind{batchv1.SchemeGroupVersion, "cronjobs", &batchv1.CronJob{},
		func(c kubernetes.Interface, ns string) source { return typedSource(c.BatchV1().CronJobs(ns)) }}
	jobs = kind{batchv1.SchemeGroupVersion, "jobs", &batchv1.Job{},
		func(c kubernetes.Interface, ns string) source { return typedSource(c.BatchV1().Jobs(ns)) }}
)

var (
	certificateSigningRequests = kind{certificatesv1.SchemeGroupVersion, "certificatesigningrequests",
		&certificatesv1.CertificateSigningRequest{},
		func(c kubernetes.Interface, _ string) source {
			return typedSource(c.CertificatesV1().CertificateSigningRequests())
		}}
	podCertificateRequests = kind{certificatesv1.SchemeGroupVersion, "podcertificaterequests",
		&certificatesv1.PodCertificateRequest{},
		func(c kubernetes.Interface, ns string) source {
			return typedSource(c.CertificatesV1().PodCertificateRequests(ns))
		}}
)

var (
	leases = kind{coordinationv1.SchemeGroupVersion, "leases", &coordinationv1.Lease{},
		func(c kubernetes.Interface, ns string) source { return typedSource(c.CoordinationV1().Leases(ns)) }}
)

var (
	endpointSlices = kind{discoveryv1.SchemeGroupVersion, "endpointslices", &discoveryv1.EndpointSlice{},
		func(c kubernetes.Interface, ns string) source { return typedSource(c.DiscoveryV1().EndpointSlices(ns)) }}
)

var (
	ipAddresses = kind{networkingv1.SchemeGroupVersion, "ipaddresses", &networkingv1.IPAddress{},
		func(c kubernetes.Interface, _ string) source { return typedSource(c.NetworkingV1().IPAddresses()) }}
	ingresses = kind{networkingv1.SchemeGroupVersion, "ingresses", &networkingv1.Ingress{},
		func(c kubernetes.Interface, ns string) source { return typedSource(c.NetworkingV1().Ingresses(ns)) }}
	ingressClasses = kind{networkingv1.SchemeGroupVersion, "ingressclasses", &networkingv1.IngressClass{},
		func(c kubernetes.Interface, _ string) source { return typedSource(c.NetworkingV1().IngressClasses()) }}
	networkPolicies = kind{networkingv1.SchemeGroupVersion, "networkpolicies", &networkingv1.NetworkPolicy{},
		func(c kubernetes.Interface, ns string) source {
			return typedSource(c.NetworkingV1().NetworkPolicies(ns))
		}}
	serviceCIDRs = kind{networkingv1.SchemeGroupVersion, "servicecidrs", &networkingv1.ServiceCIDR{},
		func(c kubernetes.Interface, _ string) source { return typedSource(c.NetworkingV1().ServiceCIDRs()) }}
)

var (
	podDisruptionBudgets = kind{policyv1.SchemeGroupVersion, "poddisruptionbudgets",
		&policyv1.PodDisruptionBudget{},
		func(c kubernetes.Interface, ns string) source {
			return typedSource(c.PolicyV1().PodDisruptionBudgets(ns))
		}}
)

var (
	clusterRoles = kind{rbacv1.SchemeGroupVersion, "clusterroles", &rbacv1.ClusterRole{},
		func(c kubernetes.Interface, _ string) source { return typedSource(c.RbacV1().ClusterRoles()) }}
)

var (
	deviceClasses = kind{resourcev1.SchemeGroupVersion, "deviceclasses", &resourcev1.DeviceClass{},
		func(c kubernetes.Interface, _ string) source { return typedSource(c.ResourceV1().DeviceClasses()) }}
	deviceTaintRules = kind{resourcev1.SchemeGroupVersion, "devicetaintrules", &resourcev1.DeviceTaintRule{},
		func(c kubernetes.Interface, _ string) source { return typedSource(c.ResourceV1().DeviceTaintRules()) }}
	resourceClaims = kind{resourcev1.SchemeGroupVersion, "resourceclaims", &resourcev1.ResourceClaim{},
		func(c kubernetes.Interface, ns string) source { return typedSource(c.ResourceV1().ResourceClaims(ns)) }}
	resourceClaimTemplates = kind{resourcev1.SchemeGroupVersion, "resourceclaimtemplates",
		&resourcev1.ResourceClaimTemplate{},
		func(c kubernetes.Interface, ns string) source {
			return typedSource(c.ResourceV1().ResourceClaimTemplates(ns))
		}}
	resourceSlices = kind{resourcev1.SchemeGroupVersion, "resourceslices", &resourcev1.ResourceSlice{},
		func(c kubernetes.Interface, _ string) source { return typedSource(c.ResourceV1().ResourceSlices()) }}
)

var (
	csiDrivers = kind{storagev1.SchemeGroupVersion, "csidrivers", &storagev1.CSIDriver{},
		func(c kubernetes.Interface, _ string) source { return typedSource(c.StorageV1().CSIDrivers()) }}
	csiNodes = kind{storagev1.SchemeGroupVersion, "csinodes", &storagev1.CSINode{},
		func(c kubernetes.Interface, _ string) source { return typedSource(c.StorageV1().CSINodes()) }}
	csiStorageCapacities = kind{storagev1.SchemeGroupVersion, "csistoragecapacities",
		&storagev1.CSIStorageCapacity{},
		func(c kubernetes.Interface, ns string) source {
			return typedSource(c.StorageV1().CSIStorageCapacities(ns))
		}}
	storageClasses = kind{storagev1.SchemeGroupVersion, "storageclasses", &storagev1.StorageClass{},
		func(c kubernetes.Interface, _ string) source { return typedSource(c.StorageV1().StorageClasses()) }}
	volumeAttachments = kind{storagev1.SchemeGroupVersion, "volumeattachments", &storagev1.VolumeAttachment{},
		func(c kubernetes.Interface, _ string) source { return typedSource(c.StorageV1().VolumeAttachments()) }}
	volumeAttributesClasses = kind{storagev1.SchemeGroupVersion, "volumeattributesclasses",
		&storagev1.VolumeAttributesClass{},
		func(c kubernetes.Interface, _ string) source {
			return typedSource(c.StorageV1().VolumeAttributesClasses())
		}}
)

var (
	storageVersionMigrations = kind{storagemigrationv1.SchemeGroupVersion, "storageversionmigrations",
		&storagemigrationv1.StorageVersionMigration{},
		func(c kubernetes.Interface, _ string) source {
			return typedSource(c.StoragemigrationV1().StorageVersionMigrations())
		}}
)
