package authz

import rbacv1 "k8s.io/api/rbac/v1"

// clusterRoles returns the roles for users, for monitoring and for daemons.
//
//style:long a literal table with an element for each role
func clusterRoles() []rbacv1.ClusterRole {
	with := func(rules ...rbacv1.PolicyRule) []rbacv1.PolicyRule { return append(eventRules(), rules...) }
	return []rbacv1.ClusterRole{
		newClusterRole("cluster-admin", newRule("*", "*", "*"), pathRule("*", "*")),
		aggregatingRole("admin", ""), aggregatingRole("edit", "admin"), aggregatingRole("view", "edit"),
		aggregatedPart("system:aggregate-to-admin", "admin", adminRules()...),
		aggregatedPart("system:aggregate-to-edit", "edit", editRules()...),
		aggregatedPart("system:aggregate-to-view", "view", viewRules()...),
		aggregatedReader(),

		newClusterRole("system:basic-user",
			newRule("authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews", "create"),
			newRule("authentication.k8s.io", "selfsubjectreviews", "create")),
		newClusterRole("system:discovery", pathRule("get", "/livez", "/readyz", "/healthz", "/version", "/version/",
			"/openapi", "/openapi/*", "/api", "/api/*", "/apis", "/apis/*")),
		newClusterRole("system:public-info-viewer", pathRule("get", "/livez", "/readyz", "/healthz", "/version",
			"/version/")),
		newClusterRole("system:service-account-issuer-discovery", pathRule("get", "/.well-known/openid-configuration",
			"/.well-known/openid-configuration/", "/openid/v1/jwks", "/openid/v1/jwks/")),
		newClusterRole("system:cluster-trust-bundle-discovery",
			newRule("certificates.k8s.io", "clustertrustbundles", readVerbs)),
		newClusterRole("system:monitoring", pathRule("get", "/metrics", "/metrics/slis", "/livez", "/readyz",
			"/healthz", "/livez/*", "/readyz/*", "/healthz/*", "/statusz", "/flagz")),
		newClusterRole("system:auth-delegator", newRule("authentication.k8s.io", "tokenreviews", "create"), newRule(
			"authorization.k8s.io", "subjectaccessreviews", "create")),
		newClusterRole("system:kubelet-api-admin", newRule("", "nodes", "get list watch proxy"), newRule("",
			"nodes/proxy nodes/metrics nodes/stats nodes/log nodes/spec nodes/configz nodes/healthz nodes/pods", "*")),
		newClusterRole("system:heapster", newRule("", "events pods nodes namespaces", readVerbs),
			newRule("apps", "deployments", readVerbs)),
		newClusterRole("system:persistent-volume-provisioner", with(newRule("", "persistentvolumes",
			"create delete get list watch"), newRule("", "persistentvolumeclaims", "get list update watch"),
			newRule("storage.k8s.io", "storageclasses", readVerbs))...),

		newClusterRole("system:node", append(nodeRules(), newRule("", "nodes", readVerbs),
			newRule("", "pods", readVerbs), newRule("", "secrets configmaps persistentvolumeclaims persistentvolumes",
				readVerbs), newRule("", "persistentvolumeclaims/status", "get patch update"),
			newRule("", "serviceaccounts/token", "create"), newRule("", "serviceaccounts", "get"), newRule(
				"storage.k8s.io", "volumeattachments", readVerbs), newRule("storage.k8s.io", "csinodes",
				"create delete get patch update"), newRule("coordination.k8s.io", "leases",
				"create delete get patch update"))...),
		newClusterRole("system:node-bootstrapper", newRule("certificates.k8s.io", "certificatesigningrequests",
			"create get list watch")),
		newClusterRole("system:node-problem-detector", with(newRule("", "nodes", "get"),
			newRule("", "nodes/status", "patch"))...),
		newClusterRole("system:node-proxier", with(newRule("", "services endpoints", "list watch"),
			newRule("", "nodes", readVerbs), newRule("discovery.k8s.io", "endpointslices", "list watch"),
			newRule("networking.k8s.io", "servicecidrs", "list watch"))...),
		// Read access of daemons that run on several machines. Replicas (replica.go) decides which objects each machine
		// may change. Roles of earlier releases, without "replica", granted everything to all machines through one
		// user.
		newClusterRole("system:replica:kube-network", newRule("", "nodes services", readVerbs),
			newRule("networking.k8s.io", "networkpolicies", readVerbs),
			newRule("discovery.k8s.io", "endpointslices", readVerbs)),
		newClusterRole("system:replica:kube-dns", newRule("", "services namespaces nodes", readVerbs),
			newRule("discovery.k8s.io", "endpointslices", readVerbs)),
		newClusterRole("system:replica:kube-ingress", newRule("", "services namespaces", readVerbs),
			newRule("discovery.k8s.io", "endpointslices", readVerbs),
			newRule("networking.k8s.io", "ingresses ingressclasses", readVerbs),
			newRule("apiextensions.k8s.io", "customresourcedefinitions", readVerbs),
			newRule("gateway.networking.k8s.io", "gatewayclasses gateways httproutes referencegrants", readVerbs)),
		// Administrators bind this role in a namespace to let its Gateways have Services of type LoadBalancer.
		// Admission restricts the proxies to Services with the label of Gateways.
		newClusterRole("system:kube-ingress:gateway-addresses", newRule("", "services", "create update delete"),
			newRule("discovery.k8s.io", "endpointslices", "create update")),
		newClusterRole("system:replica:metrics-server", newRule("", "nodes pods", readVerbs),
			newRule("", "nodes/metrics", "get"), withNames(newRule("apiregistration.k8s.io", "apiservices",
				"get create patch"), "v1beta1.metrics.k8s.io"), newRule("authentication.k8s.io", "tokenreviews",
				"create"), newRule("authorization.k8s.io", "subjectaccessreviews", "create")),
		newClusterRole("system:coredns", newRule("", "endpoints services pods namespaces", "list watch"),
			newRule("discovery.k8s.io", "endpointslices", "list watch")),

		newClusterRole("system:kube-scheduler", with(newRule("coordination.k8s.io", "leases", "create"),
			withNames(newRule("coordination.k8s.io", "leases", "get list update watch"), "kube-scheduler"),
			newRule("", "nodes", readVerbs), newRule("", "pods", "delete get list watch"),
			newRule("", "pods/binding bindings", "create"), newRule("", "pods/status", "patch update"), newRule("",
				"replicationcontrollers services namespaces", readVerbs),
			newRule("apps", "replicasets statefulsets", readVerbs),
			newRule("policy", "poddisruptionbudgets", readVerbs), newRule("",
				"persistentvolumeclaims persistentvolumes", readVerbs), newRule("storage.k8s.io",
				"csinodes csidrivers csistoragecapacities storageclasses volumeattachments", readVerbs),
			newRule("scheduling.k8s.io", "priorityclasses", readVerbs), newRule("resource.k8s.io",
				"deviceclasses devicetaintrules resourceslices", readVerbs), newRule("resource.k8s.io",
				"resourceclaims", "create delete get list patch update watch"), newRule("resource.k8s.io",
				"resourceclaims/status resourceclaims/binding", "get patch update"), newRule("authentication.k8s.io",
				"tokenreviews", "create"), newRule("authorization.k8s.io", "subjectaccessreviews", "create"))...),
		newClusterRole("system:volume-scheduler", newRule("", "persistentvolumes", "get list patch update watch"),
			newRule("storage.k8s.io", "storageclasses", readVerbs), newRule("", "persistentvolumeclaims",
				"get list patch update watch")),
		newClusterRole("system:kube-controller-manager", with(newRule("coordination.k8s.io", "leases", "create"),
			withNames(newRule("coordination.k8s.io", "leases", "get update"), "kube-controller-manager"),
			newRule("", "secrets serviceaccounts", "create"), newRule("", "secrets", "delete"), newRule("",
				"configmaps namespaces secrets serviceaccounts", "get"),
			newRule("", "secrets serviceaccounts", "update"), newRule("authentication.k8s.io", "tokenreviews",
				"create"), newRule("authorization.k8s.io", "subjectaccessreviews", "create"),
			newRule("*", "*", "list watch"), newRule("", "serviceaccounts/token", "create"))...),
		newClusterRole("system:kube-aggregator", newRule("", "services endpoints", readVerbs)),
		newClusterRole("system:certificates.k8s.io:legacy-unknown-approver",
			withNames(newRule("certificates.k8s.io", "signers", "approve"), "kubernetes.io/legacy-unknown")),
		newClusterRole("system:certificates.k8s.io:kubelet-serving-approver",
			withNames(newRule("certificates.k8s.io", "signers", "approve"), "kubernetes.io/kubelet-serving")),
		newClusterRole("system:certificates.k8s.io:kube-apiserver-client-approver",
			withNames(newRule("certificates.k8s.io", "signers", "approve"), "kubernetes.io/kube-apiserver-client")),
		newClusterRole("system:certificates.k8s.io:kube-apiserver-client-kubelet-approver",
			withNames(newRule("certificates.k8s.io", "signers", "approve"),
				"kubernetes.io/kube-apiserver-client-kubelet")),
		newClusterRole("system:certificates.k8s.io:certificatesigningrequests:nodeclient", newRule(
			"certificates.k8s.io", "certificatesigningrequests/nodeclient", "create")),
		newClusterRole("system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", newRule(
			"certificates.k8s.io", "certificatesigningrequests/selfnodeclient", "create")),
	}
}

func adminRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		newRule("authorization.k8s.io", "localsubjectaccessreviews", "create"),
		newRule("rbac.authorization.k8s.io", "roles rolebindings", readWriteVerbs),
	}
}

func editRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		newRule("", "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy", readVerbs),
		newRule("", "serviceaccounts", "impersonate"),
		newRule("", "pods pods/attach pods/exec pods/portforward pods/proxy", writeVerbs),
		newRule("", "pods/eviction", "create"),
		newRule("", "configmaps events persistentvolumeclaims replicationcontrollers replicationcontrollers/scale "+
			"secrets serviceaccounts services services/proxy", writeVerbs),
		newRule("", "serviceaccounts/token", "create"),
		newRule("apps", "daemonsets deployments deployments/rollback deployments/scale replicasets replicasets/scale "+
			"statefulsets statefulsets/scale", writeVerbs),
		newRule("autoscaling", "horizontalpodautoscalers", writeVerbs), newRule("batch", "cronjobs jobs", writeVerbs),
		newRule("policy", "poddisruptionbudgets", writeVerbs),
		newRule("networking.k8s.io", "ingresses networkpolicies", writeVerbs),
		newRule("coordination.k8s.io", "leases", readWriteVerbs),
		newRule("discovery.k8s.io", "endpointslices", "get list watch"),
	}
}

func viewRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		newRule("", "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods "+
			"replicationcontrollers replicationcontrollers/scale serviceaccounts services services/status", readVerbs),
		newRule("", "bindings events limitranges namespaces/status pods/log pods/status replicationcontrollers/status "+
			"resourcequotas resourcequotas/status", readVerbs),
		newRule("", "namespaces", readVerbs), newRule("discovery.k8s.io", "endpointslices", readVerbs),
		newRule("apps", "controllerrevisions daemonsets daemonsets/status deployments deployments/scale "+
			"deployments/status replicasets replicasets/scale replicasets/status statefulsets statefulsets/scale "+
			"statefulsets/status", readVerbs),
		newRule("autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status", readVerbs),
		newRule("batch", "cronjobs cronjobs/status jobs jobs/status",
			readVerbs), newRule("policy", "poddisruptionbudgets poddisruptionbudgets/status", readVerbs),
		newRule("networking.k8s.io", "ingresses ingresses/status networkpolicies", readVerbs),
	}
}

// aggregatedReader returns the role with which users who may view, edit or administer a namespace can read the resource
// usage of its pods. Bound cluster-wide, these roles include the usage of nodes.
func aggregatedReader() rbacv1.ClusterRole {
	r := aggregatedPart("system:aggregated-metrics-reader", "view", newRule("metrics.k8s.io", "pods nodes", readVerbs))
	for _, of := range []string{"edit", "admin"} {
		r.Labels[aggregateLabel+of] = "true"
	}
	return r
}
