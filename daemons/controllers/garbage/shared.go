package garbage

import "k8s.io/apimachinery/pkg/runtime/schema"

// sharedResources lists the kinds that other controllers hold in shared caches with all metadata that the collector
// needs. The collector reads them there instead of holding a second copy. It watches the metadata of all other kinds
// itself. The list is fixed, so that the order in which controllers are created does not matter. A test over all
// controllers checks it.
var sharedResources = func() map[schema.GroupVersionResource]bool {
	all := map[schema.GroupVersionResource]bool{}
	for group, resources := range map[schema.GroupVersion][]string{
		{Version: "v1"}: {"endpoints", "namespaces", "nodes", "persistentvolumeclaims", "persistentvolumes", "pods",
			"replicationcontrollers",
			"resourcequotas", "secrets", "serviceaccounts", "services"},
		{Group: "admissionregistration.k8s.io", Version: "v1"}: {"validatingadmissionpolicies"},
		{Group: "apps", Version: "v1"}: {"controllerrevisions", "daemonsets", "deployments",
			"replicasets", "statefulsets"},
		{Group: "autoscaling", Version: "v2"}:               {"horizontalpodautoscalers"},
		{Group: "batch", Version: "v1"}:                     {"cronjobs", "jobs"},
		{Group: "certificates.k8s.io", Version: "v1"}:       {"certificatesigningrequests", "podcertificaterequests"},
		{Group: "coordination.k8s.io", Version: "v1"}:       {"leases"},
		{Group: "discovery.k8s.io", Version: "v1"}:          {"endpointslices"},
		{Group: "networking.k8s.io", Version: "v1"}:         {"ipaddresses", "networkpolicies", "servicecidrs"},
		{Group: "policy", Version: "v1"}:                    {"poddisruptionbudgets"},
		{Group: "rbac.authorization.k8s.io", Version: "v1"}: {"clusterroles"},
		{Group: "resource.k8s.io", Version: "v1"}: {"deviceclasses", "devicetaintrules", "resourceclaims",
			"resourceclaimtemplates", "resourceslices"},
		{Group: "storage.k8s.io", Version: "v1"}:          {"storageclasses", "volumeattributesclasses"},
		{Group: "storagemigration.k8s.io", Version: "v1"}: {"storageversionmigrations"},
	} {
		for _, r := range resources {
			all[group.WithResource(r)] = true
		}
	}
	return all
}()

// IsShared reports whether the collector reads a resource's objects from the shared caches.
func IsShared(resource schema.GroupVersionResource) bool { return sharedResources[resource] }
