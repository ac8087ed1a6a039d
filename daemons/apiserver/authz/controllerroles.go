package authz

import rbacv1 "k8s.io/api/rbac/v1"

type controllerRole struct {
	name  string
	rules []rbacv1.PolicyRule
}

// controllerRoles returns a role for each controller, with only the rights that it needs.
//
//style:long a literal table with the rights of each controller
func controllerRoles() []controllerRole {
	c := func(name string, rules ...rbacv1.PolicyRule) controllerRole {
		return controllerRole{name, append(eventRules(), rules...)}
	}
	// Create, adopt and release pods.
	pods := newRule("", "pods", "create delete get list patch update watch")
	return []controllerRole{
		c("attachdetach-controller", newRule("", "persistentvolumeclaims persistentvolumes nodes pods", readVerbs),
			newRule("", "nodes/status", "patch update"), newRule("storage.k8s.io", "volumeattachments",
				"create delete get list watch"), newRule("storage.k8s.io", "csidrivers csinodes", readVerbs)),
		// This project's controller checks whether the name of a new node exists already; upstream's role has no access
		// to nodes.
		c("certificate-controller", newRule("", "nodes", readVerbs), newRule("certificates.k8s.io",
			"certificatesigningrequests", "delete get list watch"), newRule("certificates.k8s.io",
			"certificatesigningrequests/approval certificatesigningrequests/status", "update"), newRule(
			"certificates.k8s.io", "signers", "approve sign"), newRule("authorization.k8s.io", "subjectaccessreviews",
			"create")),
		// Upstream has no such role, because each cloud provider brings one. The inventory of machines is in
		// kube-system (defaults.go).
		c("cloud-node-controller", newRule("", "nodes", "delete get list patch "+
			"watch"), newRule("", "nodes/status", "patch")),
		c("clusterrole-aggregation-controller", newRule("rbac.authorization.k8s.io", "clusterroles",
			"escalate get list patch update watch")),
		c("cronjob-controller", newRule("batch", "cronjobs", "get list update patch watch"), newRule("batch", "jobs",
			"create delete get list patch update watch"), newRule("batch", "cronjobs/status cronjobs/finalizers",
			"update patch"), newRule("", "pods", "delete list")),
		c("daemon-set-controller", newRule("apps", "daemonsets", readVerbs), newRule("apps",
			"daemonsets/status daemonsets/finalizers", "update patch"), newRule("", "nodes", "list watch"), pods,
			newRule("", "pods/binding", "create"), newRule("apps", "controllerrevisions",
				"create delete get list patch update watch")),
		c("deployment-controller", newRule("apps", "deployments", "get list update patch watch"), newRule("apps",
			"deployments/status deployments/finalizers", "update patch"), newRule("apps", "replicasets",
			"create delete get list patch update watch"), newRule("", "pods", "get list update watch")),
		// Not in upstream. The controller calls kubelets only to delete and expand volumes.
		c("directory-provisioner", newRule("", "persistentvolumes", "create delete get list update watch"), newRule("",
			"persistentvolumes/status persistentvolumeclaims/status", "update"), newRule("", "persistentvolumeclaims",
			"get list update watch"), newRule("storage.k8s.io", "storageclasses volumeattributesclasses", readVerbs),
			newRule("", "nodes", readVerbs), newRule("", "nodes/proxy", "delete update")),
		c("device-taint-eviction-controller", newRule("", "pods", "delete get list watch"),
			newRule("", "pods/status", "patch update"), newRule("resource.k8s.io",
				"deviceclasses devicetaintrules resourceclaims resourceslices", readVerbs), newRule("resource.k8s.io",
				"devicetaintrules/status", "patch update")),
		c("disruption-controller", newRule("apps", "deployments replicasets statefulsets", readVerbs),
			newRule("", "replicationcontrollers pods", readVerbs), newRule("policy", "poddisruptionbudgets", readVerbs),
			newRule("policy", "poddisruptionbudgets/status", "update patch"),
			newRule("", "pods/status", "patch update"), newRule("*", "*/scale", "get")),
		c("endpoint-controller", newRule("", "pods services", readVerbs), newRule("", "endpoints",
			"create delete get list update patch watch"), newRule("", "endpoints/restricted", "create"),
			newRule("", "services/finalizers", "update")),
		c("endpointslice-controller", newRule("", "nodes pods services", readVerbs), newRule("discovery.k8s.io",
			"endpointslices", "create delete get list update patch watch"), newRule("discovery.k8s.io",
			"endpointslices/restricted", "create"), newRule("", "services/finalizers", "update")),
		c("endpointslicemirroring-controller", newRule("", "endpoints services", readVerbs), newRule("discovery.k8s.io",
			"endpointslices", "create delete get list update patch watch"), newRule("discovery.k8s.io",
			"endpointslices/restricted", "create"), newRule("", "endpoints/finalizers services/finalizers", "update")),
		c("ephemeral-volume-controller", newRule("", "pods/finalizers", "update"), newRule("", "pods", readVerbs),
			newRule("", "persistentvolumeclaims", "create get list watch")),
		c("expand-controller", newRule("", "persistentvolumes", "get list patch update watch"),
			newRule("", "persistentvolumeclaims", readVerbs),
			newRule("", "persistentvolumeclaims/status", "patch update"),
			newRule("storage.k8s.io", "storageclasses", readVerbs)),
		c("generic-garbage-collector", newRule("*", "*", "delete get list patch update watch")),
		c("horizontal-pod-autoscaler", newRule("autoscaling", "horizontalpodautoscalers", readVerbs), newRule(
			"autoscaling", "horizontalpodautoscalers/status", "update patch"), newRule("*", "*/scale",
			"get update patch"), newRule("", "pods", "list watch"), newRule("metrics.k8s.io", "pods", "list"), newRule(
			"custom.metrics.k8s.io external.metrics.k8s.io", "*", "get list")),
		// This project's controller also deletes expired jobs, which upstream's ttl-after-finished-controller does.
		c("job-controller", newRule("batch", "jobs", "delete get list patch update watch"), newRule("batch",
			"jobs/status jobs/finalizers", "update patch"), pods),
		c("legacy-service-account-token-cleaner", newRule("", "secrets", "delete patch get list watch"),
			withNames(newRule("", "configmaps", "get"), "kube-apiserver-legacy-service-account-token-tracking")),
		c("namespace-controller", newRule("", "namespaces", "delete get list watch"), newRule("",
			"namespaces/finalize namespaces/status", "update patch"),
			newRule("*", "*", "delete deletecollection get list")),
		// Not in upstream. The controller publishes the addresses of the pods that network policies select.
		c("networkpolicy-controller", newRule("networking.k8s.io", "networkpolicies", readVerbs),
			newRule("", "namespaces pods", readVerbs), newRule("discovery.k8s.io", "endpointslices",
				"create delete get list patch update watch"), newRule("discovery.k8s.io", "endpointslices/restricted",
				"create")),
		c("node-controller", newRule("", "nodes", "delete get list patch update watch"),
			newRule("", "nodes/status", "patch update"), newRule("", "pods/status", "patch update"),
			newRule("", "pods", "delete get list watch"), newRule("coordination.k8s.io", "leases", readVerbs)),
		c("persistent-volume-binder", newRule("", "persistentvolumes", "create delete get list patch update watch"),
			newRule("", "persistentvolumes/status persistentvolumeclaims/status", "update patch"), newRule("",
				"persistentvolumeclaims", "get list patch update watch"),
			newRule("storage.k8s.io", "storageclasses", readVerbs), newRule("", "pods", "create delete get list watch"),
			newRule("", "endpoints services", "create delete get update"), newRule("", "secrets", "get list watch"),
			newRule("", "nodes", readVerbs)),
		c("pod-garbage-collector", newRule("", "pods", "delete list watch"), newRule("", "pods/status", "patch"),
			newRule("", "nodes", "get list watch")),
		c("podcertificaterequest-cleaner", newRule("certificates.k8s.io", "podcertificaterequests",
			"delete get list watch")),
		c("pv-protection-controller", newRule("", "persistentvolumes", "get list patch update watch")),
		c("pvc-protection-controller", newRule("", "persistentvolumeclaims", "get list patch update watch"),
			newRule("", "persistentvolumeclaims/status", "patch update"), newRule("", "pods", readVerbs)),
		c("replicaset-controller", newRule("apps", "replicasets", "get list update patch watch"), newRule("apps",
			"replicasets/status replicasets/finalizers", "update patch"), pods),
		c("replication-controller", newRule("", "replicationcontrollers", "get list update patch watch"), newRule("",
			"replicationcontrollers/status replicationcontrollers/finalizers", "update patch"), pods),
		c("resource-claim-controller", newRule("", "pods", readVerbs), newRule("", "pods/finalizers", "update"),
			newRule("", "pods/status", "patch update"), newRule("resource.k8s.io", "resourceclaimtemplates", readVerbs),
			newRule("resource.k8s.io", "resourceclaims", "create delete get list patch update watch"), newRule(
				"resource.k8s.io", "resourceclaims/status resourceclaims/binding resourceclaims/finalizers",
				"patch update")),
		c("resourcequota-controller", newRule("*", "*", "list watch"),
			newRule("", "resourcequotas/status", "update patch")),
		c("root-ca-cert-publisher", newRule("", "configmaps", "create get list update watch"),
			newRule("", "namespaces", readVerbs)),
		c("route-controller", newRule("", "nodes", "list watch"), newRule("", "nodes/status", "patch")),
		// This project's controller also publishes the root CA, which upstream's root-ca-cert-publisher does.
		c("service-account-controller", newRule("", "serviceaccounts", "create get list watch"),
			newRule("", "namespaces", readVerbs), newRule("", "configmaps", "create get list update watch")),
		// Upstream's controller writes these Secrets as the user system:kube-controller-manager.
		c("serviceaccount-token-controller", newRule("", "secrets", "delete get list update watch"),
			newRule("", "serviceaccounts", "get list watch")),
		c("service-cidrs-controller", newRule("networking.k8s.io", "servicecidrs", "get list patch update watch"),
			newRule("networking.k8s.io", "servicecidrs/finalizers servicecidrs/status", "patch update"),
			newRule("networking.k8s.io", "ipaddresses", readVerbs)),
		// This project's controller needs no nodes, because they elect the holder of an address themselves. The pools
		// are in kube-system (defaults.go).
		c("service-controller", newRule("", "services", readVerbs), newRule("", "services/status", "patch")),
		c("statefulset-controller", newRule("apps", "statefulsets", readVerbs), newRule("apps",
			"statefulsets/status statefulsets/finalizers", "update patch"), pods,
			newRule("", "pods/finalizers", "update"), newRule("apps", "controllerrevisions",
				"create delete get list patch update watch"), newRule("", "persistentvolumeclaims",
				"create delete get list patch update watch")),
		c("storage-version-migrator-controller", newRule("*", "*", "list patch"),
			pathRule("get", "/readyz/encryption-rewritten"), newRule("storagemigration.k8s.io",
				"storageversionmigrations/status", "update"), newRule("apiextensions.k8s.io",
				"customresourcedefinitions", "get"), newRule("apiextensions.k8s.io", "customresourcedefinitions/status",
				"update")),
		c("taint-eviction-controller", newRule("", "pods", "delete get list watch"),
			newRule("", "pods/status", "patch"), newRule("", "nodes", readVerbs)),
		c("ttl-after-finished-controller", newRule("batch", "jobs", "delete get list watch")),
		c("validatingadmissionpolicy-status-controller", newRule("admissionregistration.k8s.io",
			"validatingadmissionpolicies", readVerbs), newRule("admissionregistration.k8s.io",
			"validatingadmissionpolicies/status", "update patch")),
		c("ttl-controller", newRule("", "nodes", "list patch update watch")),
		c("volumeattributesclass-protection-controller", newRule("", "persistentvolumeclaims persistentvolumes",
			readVerbs), newRule("storage.k8s.io", "volumeattributesclasses", "get list patch update watch")),
	}
}
