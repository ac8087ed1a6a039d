package config

// FormerUsers are the users that daemons were on all machines in releases that had one for all of them (see
// daemons/api/replica for those that they are now). What such a release let a user do is in a ClusterRoleBinding of its name and
// in a RoleBinding of kube-system.
var FormerUsers = []string{"system:kube-dns", "system:kube-ingress", "system:kube-network", "system:metrics-server"}
