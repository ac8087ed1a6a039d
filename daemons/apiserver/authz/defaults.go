package authz

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/api"
	"clusterctl/daemons/api/replica"
	"clusterctl/daemons/config"
	"clusterctl/daemons/config/inventory"
)

// read, readWriteVerbs and change are lists of verbs that are used together.
const (
	readVerbs      = "get list watch"
	readWriteVerbs = "create delete deletecollection get list patch update watch"
	writeVerbs     = "create delete deletecollection patch update"
)

// bootstrapLabels and bootstrapAnnotations mark the objects that the API server creates and keeps complete.
var (
	bootstrapLabels      = map[string]string{"kubernetes.io/bootstrapping": "rbac-defaults"}
	bootstrapAnnotations = map[string]string{rbacv1.AutoUpdateAnnotationKey: "true"}
)

// Defaults returns the roles and bindings that every cluster begins with. They have upstream's names, since manifests
// and users refer to them.
func Defaults() []runtime.Object {
	var out []runtime.Object
	bound := func(name string, subjects ...rbacv1.Subject) {
		out = append(out, clusterBinding(name, name, subjects...))
	}

	for _, r := range clusterRoles() {
		out = append(out, &r)
	}
	bound("cluster-admin", groupSubject(api.GroupMasters))
	out = append(out, clusterBinding("kubeadm:cluster-admins", "cluster-admin", groupSubject("kubeadm:cluster-admins")))
	bound("system:basic-user", groupSubject(api.GroupAuthenticated))
	bound("system:discovery", groupSubject(api.GroupAuthenticated))
	bound("system:public-info-viewer", groupSubject(api.GroupAuthenticated), groupSubject(api.GroupUnauthenticated))
	bound("system:service-account-issuer-discovery", groupSubject("system:serviceaccounts"))
	bound("system:cluster-trust-bundle-discovery", groupSubject("system:serviceaccounts"))
	bound("system:monitoring", groupSubject("system:monitoring"))
	bound("system:kube-scheduler", userSubject("system:kube-scheduler"))
	out = append(out, clusterBinding("system:volume-scheduler", "system:volume-scheduler",
		userSubject("system:kube-scheduler")))
	bound("system:kube-controller-manager", userSubject("system:kube-controller-manager"))
	bound("system:node-proxier", userSubject("system:kube-proxy"))
	for _, daemon := range replica.All() {
		bound("system:replica:"+daemon, groupSubject(replica.Group(daemon)))
	}
	out = append(out, clusterBinding("system:coredns", "system:coredns", accountSubject("kube-system", "coredns")))
	// The node authorizer decides for kubelets. The role exists for users who bind it themselves.
	out = append(out, clusterBinding("system:node", "system:node"))

	for _, c := range controllerRoles() {
		role := newClusterRole("system:controller:"+c.name, c.rules...)
		// The controllers may run under accounts of their own, or all as one user.
		out = append(out, &role, clusterBinding(role.Name, role.Name, accountSubject("kube-system", c.name),
			userSubject("system:kube-controller-manager")))
	}
	return append(out, namespacedDefaults()...)
}

// namespacedDefaults returns the roles and bindings in kube-system and kube-public.
func namespacedDefaults() []runtime.Object {
	var out []runtime.Object
	add := func(namespace, name string, rules []rbacv1.PolicyRule, subjects ...rbacv1.Subject) {
		meta := metav1.ObjectMeta{
			Namespace:   namespace,
			Name:        name,
			Labels:      bootstrapLabels,
			Annotations: bootstrapAnnotations,
		}
		out = append(
			out,
			&rbacv1.Role{ObjectMeta: meta, Rules: rules},
			&rbacv1.RoleBinding{
				ObjectMeta: meta,
				Subjects:   subjects,
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			},
		)
	}
	authentication := withNames(newRule("", "configmaps", readVerbs), "extension-apiserver-authentication")
	add("kube-system", "extension-apiserver-authentication-reader", []rbacv1.PolicyRule{authentication},
		userSubject("system:kube-controller-manager"), userSubject("system:kube-scheduler"))
	for _, leader := range []string{"kube-controller-manager", "kube-scheduler"} {
		add("kube-system", "system::leader-locking-"+leader, []rbacv1.PolicyRule{
			newRule("coordination.k8s.io", "leases", "create"),
			withNames(newRule("coordination.k8s.io", "leases", "get update patch"), leader),
			newRule("", "configmaps", "watch"),
			withNames(newRule("", "configmaps", "get update"), leader),
		}, userSubject("system:"+leader), accountSubject("kube-system", leader))
	}
	// The network daemons read the load balancer pools, and the inventory to announce addresses of machines that are
	// not nodes.
	add("kube-system", "system:replica:kube-network",
		[]rbacv1.PolicyRule{withNames(newRule("", "configmaps", readVerbs), config.PoolsName, inventory.Name)},
		groupSubject(replica.Group(replica.Network)))
	// The load balancer pools.
	add("kube-system", "system:controller:service-controller",
		[]rbacv1.PolicyRule{withNames(newRule("", "configmaps", readVerbs), config.PoolsName)},
		accountSubject("kube-system", "service-controller"), userSubject("system:kube-controller-manager"))
	// The inventory of machines.
	add("kube-system", "system:controller:cloud-node-controller",
		[]rbacv1.PolicyRule{withNames(newRule("", "configmaps", readVerbs), inventory.Name)},
		accountSubject("kube-system", "cloud-node-controller"), userSubject("system:kube-controller-manager"))
	add("kube-system", "system:controller:certificate-controller",
		[]rbacv1.PolicyRule{withNames(newRule("", "configmaps", "get"), inventory.Name)},
		accountSubject("kube-system", "certificate-controller"), userSubject("system:kube-controller-manager"))
	// The metrics servers maintain their own Service.
	add("kube-system", "system:replica:metrics-server",
		[]rbacv1.PolicyRule{withNames(newRule("", "services", "get create patch"), "metrics-server")},
		groupSubject(replica.Group(replica.Metrics)))
	// The presence controller removes the leases and endpoint slices of dead daemons.
	add("kube-system", "system:controller:presence-controller",
		[]rbacv1.PolicyRule{newRule("coordination.k8s.io", "leases", "list delete"),
			newRule("discovery.k8s.io", "endpointslices", "delete")},
		accountSubject("kube-system", "presence-controller"), userSubject("system:kube-controller-manager"))
	// The machines of the control plane elect the holder of the virtual address.
	add("kube-system", "system:kube-address", []rbacv1.PolicyRule{
		newRule("coordination.k8s.io", "leases", "create"),
		withNames(newRule("coordination.k8s.io", "leases", "get update"), "kube-address"),
	}, userSubject("system:kube-address"))
	add("kube-system", "system:controller:bootstrap-signer", []rbacv1.PolicyRule{newRule("", "secrets", readVerbs)},
		accountSubject("kube-system", "bootstrap-signer"), userSubject("system:kube-controller-manager"))
	add("kube-system", "system:controller:token-cleaner",
		append([]rbacv1.PolicyRule{newRule("", "secrets", "delete get list watch")}, eventRules()...),
		accountSubject("kube-system", "token-cleaner"), userSubject("system:kube-controller-manager"))
	add("kube-public", "system:controller:bootstrap-signer", append([]rbacv1.PolicyRule{
		newRule("", "configmaps", readVerbs), withNames(newRule("", "configmaps", "update"), "cluster-info"),
	}, eventRules()...), accountSubject("kube-system", "bootstrap-signer"),
		userSubject("system:kube-controller-manager"))
	return out
}

func newClusterRole(name string, rules ...rbacv1.PolicyRule) rbacv1.ClusterRole {
	return rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Labels:      bootstrapLabels,
			Annotations: bootstrapAnnotations,
		}, Rules: rules,
	}
}

// aggregatingRole returns a role that aggregates all roles with its label.
func aggregatingRole(name, into string) rbacv1.ClusterRole {
	r := newClusterRole(name)
	r.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{
		MatchLabels: map[string]string{aggregateLabel + name: "true"},
	}}}
	if into != "" {
		r.Labels = withLabel(aggregateLabel + into)
	}
	return r
}

const aggregateLabel = "rbac.authorization.k8s.io/aggregate-to-"

// aggregatedPart returns a role that is aggregated into another.
func aggregatedPart(name, of string, rules ...rbacv1.PolicyRule) rbacv1.ClusterRole {
	r := newClusterRole(name, rules...)
	r.Labels = withLabel(aggregateLabel + of)
	return r
}

func withLabel(key string) map[string]string {
	out := map[string]string{key: "true"}
	for k, v := range bootstrapLabels {
		out[k] = v
	}
	return out
}

func clusterBinding(name, role string, subjects ...rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: bootstrapLabels, Annotations: bootstrapAnnotations},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}, Subjects: subjects,
	}
}

func userSubject(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}
}

func groupSubject(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: name}
}

func accountSubject(namespace, name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
}

func withNames(r rbacv1.PolicyRule, names ...string) rbacv1.PolicyRule {
	r.ResourceNames = names
	return r
}

func pathRule(verbs string, urls ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{NonResourceURLs: urls, Verbs: strings.Fields(verbs)}
}

func eventRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		newRule("", "events", "create patch update"),
		newRule("events.k8s.io", "events", "create patch update"),
	}
}
