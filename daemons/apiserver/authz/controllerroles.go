package authz

import rbacv1 "k8s.io/api/rbac/v1"

type controllerRole struct {
	name  string
	rules []rbacv1.PolicyRule
}

// controllerRoles returns a role for each controller, with only the rights that it needs.
func controllerRoles() []controllerRole {
	c := func(name string, rules ...rbacv1.PolicyRule) controllerRole {
		return controllerRole{name, append(events(), rules...)}
	}
	// Create, adopt and release pods.
	pods := rule("", "pods", "create delete get list patch update watch")
	return []controllerRole{
		c(
			"attachdetach-controller",
			rule("", "persistentvolumeclaims persistentvolumes nodes pods", read),
			rule("", "nodes/status", "patch update"),
			rule(
				"storage.k8s.io",
				"volumeattachments",
				"create delete get list watch",
			),
			rule("storage.k8s.io", "csidrivers csinodes", read),
		),
		// This project's controller checks whether the name of a new node exists already; upstream's role has no access
		// to nodes.
		c(
			"certificate-controller",
			rule("", "nodes", read),
			rule("certificates.k8s.io", "certificatesigningrequests", "delete get list watch"),
			rule(
				"certificates.k8s.io",
				"certificatesigningrequests/approval certificatesigningrequests/status",
				"update",
			),
			rule(
				"certificates.k8s.io",
				"signers",
				"approve sign",
			),
			rule("authorization.k8s.io", "subjectaccessreviews", "create"),
		),
		// Upstream has no such role, because each cloud provider brings one. The inventory of machines is in
		// kube-system (defaults.go).
		c("cloud-node-controller", rule("", "nodes", "delete get list patch watch"), rule("", "nodes/status", "patch")),
		c(
			"clusterrole-aggregation-controller",
			rule("rbac.authorization.k8s.io", "clusterroles", "escalate get list patch update watch"),
		),
		c(
			"cronjob-controller",
			rule("batch", "cronjobs", "get list update patch watch"),
			rule("batch", "jobs", "create delete get list patch update watch"),
			rule("batch", "cronjobs/status cronjobs/finalizers", "update patch"),
			rule("", "pods", "delete list"),
		),
		c(
			"daemon-set-controller",
			rule("apps", "daemonsets", read),
			rule("apps", "daemonsets/status daemonsets/finalizers", "update patch"),
			rule("", "nodes", "list watch"),
			pods,
			rule("", "pods/binding", "create"),
			rule("apps", "controllerrevisions", "create delete get list patch update watch"),
		),
		c(
			"deployment-controller",
			rule("apps", "deployments", "get list update patch watch"),
			rule("apps", "deployments/status deployments/finalizers", "update patch"),
			rule(
				"apps",
				"replicasets",
				"create delete get list patch update watch",
			),
			rule("", "pods", "get list update watch"),
		),
		// Not in upstream. The controller calls kubelets only to delete and expand volumes.
		c(
			"directory-provisioner",
			rule("", "persistentvolumes", "create delete get list update watch"),
			rule("", "persistentvolumes/status persistentvolumeclaims/status", "update"),
			rule(
				"",
				"persistentvolumeclaims",
				"get list update watch",
			),
			rule("storage.k8s.io", "storageclasses volumeattributesclasses", read),
			rule("", "nodes", read),
			rule("", "nodes/proxy", "delete update"),
		),
		c(
			"device-taint-eviction-controller",
			rule("", "pods", "delete get list watch"),
			rule("", "pods/status", "patch update"),
			rule(
				"resource.k8s.io",
				"deviceclasses devicetaintrules resourceclaims resourceslices",
				read,
			),
			rule("resource.k8s.io", "devicetaintrules/status", "patch update"),
		),
		c(
			"disruption-controller",
			rule("apps", "deployments replicasets statefulsets", read),
			rule("", "replicationcontrollers pods", read),
			rule(
				"policy",
				"poddisruptionbudgets",
				read,
			),
			rule("policy", "poddisruptionbudgets/status", "update patch"),
			rule("", "pods/status", "patch update"),
			rule("*", "*/scale", "get"),
		),
		c(
			"endpoint-controller",
			rule("", "pods services", read),
			rule("", "endpoints", "create delete get list update patch watch"),
			rule("", "endpoints/restricted", "create"),
			rule("", "services/finalizers", "update"),
		),
		c(
			"endpointslice-controller",
			rule("", "nodes pods services", read),
			rule("discovery.k8s.io", "endpointslices", "create delete get list update patch watch"),
			rule("discovery.k8s.io", "endpointslices/restricted", "create"),
			rule("", "services/finalizers", "update"),
		),
		c(
			"endpointslicemirroring-controller",
			rule("", "endpoints services", read),
			rule("discovery.k8s.io", "endpointslices", "create delete get list update patch watch"),
			rule(
				"discovery.k8s.io",
				"endpointslices/restricted",
				"create",
			),
			rule("", "endpoints/finalizers services/finalizers", "update"),
		),
		c(
			"ephemeral-volume-controller",
			rule("", "pods/finalizers", "update"),
			rule("", "pods", read),
			rule("", "persistentvolumeclaims", "create get list watch"),
		),
		c(
			"expand-controller",
			rule("", "persistentvolumes", "get list patch update watch"),
			rule("", "persistentvolumeclaims", read),
			rule("", "persistentvolumeclaims/status", "patch update"),
			rule("storage.k8s.io", "storageclasses", read),
		),
		c("generic-garbage-collector", rule("*", "*", "delete get list patch update watch")),
		c(
			"horizontal-pod-autoscaler",
			rule("autoscaling", "horizontalpodautoscalers", read),
			rule("autoscaling", "horizontalpodautoscalers/status", "update patch"),
			rule(
				"*",
				"*/scale",
				"get update patch",
			),
			rule("", "pods", "list watch"),
			rule("metrics.k8s.io", "pods", "list"),
			rule("custom.metrics.k8s.io external.metrics.k8s.io", "*", "get list"),
		),
		// This project's controller also deletes expired jobs, which upstream's ttl-after-finished-controller does.
		c(
			"job-controller",
			rule("batch", "jobs", "delete get list patch update watch"),
			rule("batch", "jobs/status jobs/finalizers", "update patch"),
			pods,
		),
		c("legacy-service-account-token-cleaner", rule("", "secrets", "delete patch get list watch"),
			named(rule("", "configmaps", "get"), "kube-apiserver-legacy-service-account-token-tracking")),
		c(
			"namespace-controller",
			rule("", "namespaces", "delete get list watch"),
			rule("", "namespaces/finalize namespaces/status", "update patch"),
			rule("*", "*", "delete deletecollection get list"),
		),
		// Not in upstream. The controller publishes the addresses of the pods that network policies select.
		c(
			"networkpolicy-controller",
			rule("networking.k8s.io", "networkpolicies", read),
			rule("", "namespaces pods", read),
			rule(
				"discovery.k8s.io",
				"endpointslices",
				"create delete get list patch update watch",
			),
			rule("discovery.k8s.io", "endpointslices/restricted", "create"),
		),
		c(
			"node-controller",
			rule("", "nodes", "delete get list patch update watch"),
			rule("", "nodes/status", "patch update"),
			rule("", "pods/status", "patch update"),
			rule("", "pods", "delete get list watch"),
			rule("coordination.k8s.io", "leases", read),
		),
		c(
			"persistent-volume-binder",
			rule("", "persistentvolumes", "create delete get list patch update watch"),
			rule("", "persistentvolumes/status persistentvolumeclaims/status", "update patch"),
			rule(
				"",
				"persistentvolumeclaims",
				"get list patch update watch",
			),
			rule("storage.k8s.io", "storageclasses", read),
			rule("", "pods", "create delete get list watch"),
			rule(
				"",
				"endpoints services",
				"create delete get update",
			),
			rule("", "secrets", "get list watch"),
			rule("", "nodes", read),
		),
		c(
			"pod-garbage-collector",
			rule("", "pods", "delete list watch"),
			rule("", "pods/status", "patch"),
			rule("", "nodes", "get list watch"),
		),
		c("podcertificaterequest-cleaner", rule("certificates.k8s.io", "podcertificaterequests",
			"delete get list watch")),
		c("pv-protection-controller", rule("", "persistentvolumes", "get list patch update watch")),
		c(
			"pvc-protection-controller",
			rule("", "persistentvolumeclaims", "get list patch update watch"),
			rule("", "persistentvolumeclaims/status", "patch update"),
			rule("", "pods", read),
		),
		c(
			"replicaset-controller",
			rule("apps", "replicasets", "get list update patch watch"),
			rule("apps", "replicasets/status replicasets/finalizers", "update patch"),
			pods,
		),
		c(
			"replication-controller",
			rule("", "replicationcontrollers", "get list update patch watch"),
			rule("", "replicationcontrollers/status replicationcontrollers/finalizers", "update patch"),
			pods,
		),
		c(
			"resource-claim-controller",
			rule("", "pods", read),
			rule("", "pods/finalizers", "update"),
			rule("", "pods/status", "patch update"),
			rule(
				"resource.k8s.io",
				"resourceclaimtemplates",
				read,
			),
			rule("resource.k8s.io", "resourceclaims", "create delete get list patch update watch"),
			rule(
				"resource.k8s.io",
				"resourceclaims/status resourceclaims/binding resourceclaims/finalizers",
				"patch update",
			),
		),
		c("resourcequota-controller", rule("*", "*", "list watch"), rule("", "resourcequotas/status", "update patch")),
		c(
			"root-ca-cert-publisher",
			rule("", "configmaps", "create get list update watch"),
			rule("", "namespaces", read),
		),
		c("route-controller", rule("", "nodes", "list watch"), rule("", "nodes/status", "patch")),
		// This project's controller also publishes the root CA, which upstream's root-ca-cert-publisher does.
		c(
			"service-account-controller",
			rule("", "serviceaccounts", "create get list watch"),
			rule("", "namespaces", read),
			rule("", "configmaps", "create get list update watch"),
		),
		// Upstream's controller writes these Secrets as the user system:kube-controller-manager.
		c(
			"serviceaccount-token-controller",
			rule("", "secrets", "delete get list update watch"),
			rule("", "serviceaccounts", "get list watch"),
		),
		c(
			"service-cidrs-controller",
			rule("networking.k8s.io", "servicecidrs", "get list patch update watch"),
			rule("networking.k8s.io", "servicecidrs/finalizers servicecidrs/status", "patch update"),
			rule("networking.k8s.io", "ipaddresses", read),
		),
		// This project's controller needs no nodes, because they elect the holder of an address themselves. The pools
		// are in kube-system (defaults.go).
		c("service-controller", rule("", "services", read), rule("", "services/status", "patch")),
		c(
			"statefulset-controller",
			rule("apps", "statefulsets", read),
			rule("apps", "statefulsets/status statefulsets/finalizers", "update patch"),
			pods,
			rule("", "pods/finalizers", "update"),
			rule(
				"apps",
				"controllerrevisions",
				"create delete get list patch update watch",
			),
			rule("", "persistentvolumeclaims", "create delete get list patch update watch"),
		),
		c(
			"storage-version-migrator-controller",
			rule("*", "*", "list patch"),
			paths("get", "/readyz/encryption-rewritten"),
			rule("storagemigration.k8s.io", "storageversionmigrations/status", "update"),
			rule(
				"apiextensions.k8s.io",
				"customresourcedefinitions",
				"get",
			),
			rule("apiextensions.k8s.io", "customresourcedefinitions/status", "update"),
		),
		c(
			"taint-eviction-controller",
			rule("", "pods", "delete get list watch"),
			rule("", "pods/status", "patch"),
			rule("", "nodes", read),
		),
		c("ttl-after-finished-controller", rule("batch", "jobs", "delete get list watch")),
		c(
			"validatingadmissionpolicy-status-controller",
			rule("admissionregistration.k8s.io", "validatingadmissionpolicies", read),
			rule("admissionregistration.k8s.io", "validatingadmissionpolicies/status", "update patch"),
		),
		c("ttl-controller", rule("", "nodes", "list patch update watch")),
		c(
			"volumeattributesclass-protection-controller",
			rule("", "persistentvolumeclaims persistentvolumes", read),
			rule("storage.k8s.io", "volumeattributesclasses", "get list patch update watch"),
		),
	}
}
