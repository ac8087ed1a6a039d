package authz

import rbacv1 "k8s.io/api/rbac/v1"

// clusterRoles returns the roles for users, for monitoring and for daemons.
func clusterRoles() []rbacv1.ClusterRole {
	with := func(rules ...rbacv1.PolicyRule) []rbacv1.PolicyRule { return append(events(), rules...) }
	return []rbacv1.ClusterRole{
		clusterRole("cluster-admin", rule("*", "*", "*"), paths("*", "*")),
		aggregated("admin", ""), aggregated("edit", "admin"), aggregated("view", "edit"),
		part("system:aggregate-to-admin", "admin", adminRules()...),
		part("system:aggregate-to-edit", "edit", editRules()...),
		part("system:aggregate-to-view", "view", viewRules()...),
		aggregatedReader(),

		clusterRole("system:basic-user",
			rule("authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews", "create"),
			rule("authentication.k8s.io", "selfsubjectreviews", "create")),
		clusterRole(
			"system:discovery",
			paths(
				"get",
				"/livez",
				"/readyz",
				"/healthz",
				"/version",
				"/version/",
				"/openapi",
				"/openapi/*",
				"/api",
				"/api/*",
				"/apis",
				"/apis/*",
			),
		),
		clusterRole(
			"system:public-info-viewer",
			paths("get", "/livez", "/readyz", "/healthz", "/version", "/version/"),
		),
		clusterRole(
			"system:service-account-issuer-discovery",
			paths(
				"get",
				"/.well-known/openid-configuration",
				"/.well-known/openid-configuration/",
				"/openid/v1/jwks",
				"/openid/v1/jwks/",
			),
		),
		clusterRole("system:cluster-trust-bundle-discovery", rule("certificates.k8s.io", "clustertrustbundles", read)),
		clusterRole(
			"system:monitoring",
			paths(
				"get",
				"/metrics",
				"/metrics/slis",
				"/livez",
				"/readyz",
				"/healthz",
				"/livez/*",
				"/readyz/*",
				"/healthz/*",
				"/statusz",
				"/flagz",
			),
		),
		clusterRole(
			"system:auth-delegator",
			rule(
				"authentication.k8s.io",
				"tokenreviews",
				"create",
			),
			rule("authorization.k8s.io", "subjectaccessreviews", "create"),
		),
		clusterRole(
			"system:kubelet-api-admin",
			rule(
				"",
				"nodes",
				"get list watch proxy",
			),
			rule(
				"",
				"nodes/proxy nodes/metrics nodes/stats nodes/log nodes/spec nodes/configz nodes/healthz nodes/pods",
				"*",
			),
		),
		clusterRole(
			"system:heapster",
			rule("", "events pods nodes namespaces", read),
			rule("apps", "deployments", read),
		),
		clusterRole("system:persistent-volume-provisioner", with(
			rule(
				"",
				"persistentvolumes",
				"create delete get list watch",
			),
			rule("", "persistentvolumeclaims", "get list update watch"),
			rule("storage.k8s.io", "storageclasses", read),
		)...),

		clusterRole("system:node", append(
			nodeRules(),
			rule(
				"",
				"nodes",
				read,
			),
			rule("", "pods", read),
			rule("", "secrets configmaps persistentvolumeclaims persistentvolumes", read),
			rule(
				"",
				"persistentvolumeclaims/status",
				"get patch update",
			),
			rule("", "serviceaccounts/token", "create"),
			rule("", "serviceaccounts", "get"),
			rule(
				"storage.k8s.io",
				"volumeattachments",
				read,
			),
			rule("storage.k8s.io", "csinodes", "create delete get patch update"),
			rule("coordination.k8s.io", "leases", "create delete get patch update"),
		)...),
		clusterRole(
			"system:node-bootstrapper",
			rule("certificates.k8s.io", "certificatesigningrequests", "create get list watch"),
		),
		clusterRole(
			"system:node-problem-detector",
			with(rule("", "nodes", "get"), rule("", "nodes/status", "patch"))...),
		clusterRole("system:node-proxier", with(
			rule("", "services endpoints", "list watch"),
			rule("", "nodes", read),
			rule(
				"discovery.k8s.io",
				"endpointslices",
				"list watch",
			),
			rule("networking.k8s.io", "servicecidrs", "list watch"),
		)...),
		// Read access of daemons that run on several machines. Replicas (replica.go) decides which objects each machine
		// may change. Roles of earlier releases, without "replica", granted everything to all machines through one
		// user.
		clusterRole("system:replica:kube-network", rule("", "nodes services", read),
			rule("networking.k8s.io", "networkpolicies", read), rule("discovery.k8s.io", "endpointslices", read)),
		clusterRole("system:replica:kube-dns", rule("", "services namespaces nodes", read),
			rule("discovery.k8s.io", "endpointslices", read)),
		clusterRole("system:replica:kube-ingress", rule("", "services namespaces", read),
			rule("discovery.k8s.io", "endpointslices", read),
			rule("networking.k8s.io", "ingresses ingressclasses", read),
			rule("apiextensions.k8s.io", "customresourcedefinitions", read),
			rule("gateway.networking.k8s.io", "gatewayclasses gateways httproutes referencegrants", read)),
		// Administrators bind this role in a namespace to let its Gateways have Services of type LoadBalancer.
		// Admission restricts the proxies to Services with the label of Gateways.
		clusterRole(
			"system:kube-ingress:gateway-addresses",
			rule("", "services", "create update delete"),
			rule("discovery.k8s.io", "endpointslices", "create update"),
		),
		clusterRole(
			"system:replica:metrics-server",
			rule("", "nodes pods", read),
			rule("", "nodes/metrics", "get"),
			named(rule("apiregistration.k8s.io", "apiservices", "get create patch"), "v1beta1.metrics.k8s.io"),
			rule(
				"authentication.k8s.io",
				"tokenreviews",
				"create",
			),
			rule("authorization.k8s.io", "subjectaccessreviews", "create"),
		),
		clusterRole(
			"system:coredns",
			rule("", "endpoints services pods namespaces", "list watch"),
			rule("discovery.k8s.io", "endpointslices", "list watch"),
		),

		clusterRole("system:kube-scheduler", with(
			rule(
				"coordination.k8s.io",
				"leases",
				"create",
			),
			named(rule("coordination.k8s.io", "leases", "get list update watch"), "kube-scheduler"),
			rule("", "nodes", read),
			rule("", "pods", "delete get list watch"),
			rule("", "pods/binding bindings", "create"),
			rule("", "pods/status", "patch update"),
			rule(
				"",
				"replicationcontrollers services namespaces",
				read,
			),
			rule("apps", "replicasets statefulsets", read),
			rule("policy", "poddisruptionbudgets", read),
			rule("", "persistentvolumeclaims persistentvolumes", read),
			rule("storage.k8s.io", "csinodes csidrivers csistoragecapacities storageclasses volumeattachments", read),
			rule("scheduling.k8s.io", "priorityclasses", read),
			rule("resource.k8s.io", "deviceclasses devicetaintrules resourceslices", read),
			rule("resource.k8s.io", "resourceclaims", "create delete get list patch update watch"),
			rule("resource.k8s.io", "resourceclaims/status resourceclaims/binding", "get patch update"),
			rule(
				"authentication.k8s.io",
				"tokenreviews",
				"create",
			),
			rule("authorization.k8s.io", "subjectaccessreviews", "create"),
		)...),
		clusterRole(
			"system:volume-scheduler",
			rule("", "persistentvolumes", "get list patch update watch"),
			rule(
				"storage.k8s.io",
				"storageclasses",
				read,
			),
			rule("", "persistentvolumeclaims", "get list patch update watch"),
		),
		clusterRole("system:kube-controller-manager", with(
			rule(
				"coordination.k8s.io",
				"leases",
				"create",
			),
			named(rule("coordination.k8s.io", "leases", "get update"), "kube-controller-manager"),
			rule("", "secrets serviceaccounts", "create"),
			rule("", "secrets", "delete"),
			rule(
				"",
				"configmaps namespaces secrets serviceaccounts",
				"get",
			),
			rule("", "secrets serviceaccounts", "update"),
			rule(
				"authentication.k8s.io",
				"tokenreviews",
				"create",
			),
			rule("authorization.k8s.io", "subjectaccessreviews", "create"),
			rule("*", "*", "list watch"),
			rule("", "serviceaccounts/token", "create"),
		)...),
		clusterRole("system:kube-aggregator", rule("", "services endpoints", read)),
		clusterRole(
			"system:certificates.k8s.io:legacy-unknown-approver",
			named(rule("certificates.k8s.io", "signers", "approve"), "kubernetes.io/legacy-unknown"),
		),
		clusterRole(
			"system:certificates.k8s.io:kubelet-serving-approver",
			named(rule("certificates.k8s.io", "signers", "approve"), "kubernetes.io/kubelet-serving"),
		),
		clusterRole(
			"system:certificates.k8s.io:kube-apiserver-client-approver",
			named(rule("certificates.k8s.io", "signers", "approve"), "kubernetes.io/kube-apiserver-client"),
		),
		clusterRole(
			"system:certificates.k8s.io:kube-apiserver-client-kubelet-approver",
			named(rule("certificates.k8s.io", "signers", "approve"), "kubernetes.io/kube-apiserver-client-kubelet"),
		),
		clusterRole(
			"system:certificates.k8s.io:certificatesigningrequests:nodeclient",
			rule("certificates.k8s.io", "certificatesigningrequests/nodeclient", "create"),
		),
		clusterRole(
			"system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
			rule("certificates.k8s.io", "certificatesigningrequests/selfnodeclient", "create"),
		),
	}
}

func adminRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		rule("authorization.k8s.io", "localsubjectaccessreviews", "create"),
		rule("rbac.authorization.k8s.io", "roles rolebindings", readAll),
	}
}

func editRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		rule("", "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy", read),
		rule("", "serviceaccounts", "impersonate"),
		rule("", "pods pods/attach pods/exec pods/portforward pods/proxy", change), rule("", "pods/eviction", "create"),
		rule(
			"",
			"configmaps events persistentvolumeclaims replicationcontrollers replicationcontrollers/scale secrets "+
				"serviceaccounts services services/proxy",
			change,
		),
		rule("", "serviceaccounts/token", "create"),
		rule(
			"apps",
			"daemonsets deployments deployments/rollback deployments/scale replicasets replicasets/scale "+
				"statefulsets statefulsets/scale",
			change,
		),
		rule("autoscaling", "horizontalpodautoscalers", change), rule("batch", "cronjobs jobs", change),
		rule("policy", "poddisruptionbudgets", change), rule("networking.k8s.io", "ingresses networkpolicies", change),
		rule("coordination.k8s.io", "leases", readAll), rule("discovery.k8s.io", "endpointslices", "get list watch"),
	}
}

func viewRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		rule(
			"",
			"configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods replicationcontrollers "+
				"replicationcontrollers/scale serviceaccounts services services/status",
			read,
		),
		rule(
			"",
			"bindings events limitranges namespaces/status pods/log pods/status replicationcontrollers/status "+
				"resourcequotas resourcequotas/status",
			read,
		),
		rule("", "namespaces", read), rule("discovery.k8s.io", "endpointslices", read),
		rule(
			"apps",
			"controllerrevisions daemonsets daemonsets/status deployments deployments/scale deployments/status "+
				"replicasets replicasets/scale replicasets/status statefulsets statefulsets/scale statefulsets/status",
			read,
		),
		rule("autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status", read),
		rule(
			"batch",
			"cronjobs cronjobs/status jobs jobs/status",
			read,
		), rule("policy", "poddisruptionbudgets poddisruptionbudgets/status", read),
		rule("networking.k8s.io", "ingresses ingresses/status networkpolicies", read),
	}
}

// aggregatedReader returns the role with which users who may view, edit or administer a namespace can read the resource
// usage of its pods. Bound cluster-wide, these roles include the usage of nodes.
func aggregatedReader() rbacv1.ClusterRole {
	r := part("system:aggregated-metrics-reader", "view", rule("metrics.k8s.io", "pods nodes", read))
	for _, of := range []string{"edit", "admin"} {
		r.Labels[aggregateLabel+of] = "true"
	}
	return r
}
