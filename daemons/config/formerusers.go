package config

// FormerUsers are the daemons' users of earlier releases, which shared one user for all machines. Package
// daemons/api/replica defines the current users. Earlier releases granted permissions through a ClusterRoleBinding, and
// a RoleBinding in kube-system, with the user's name.
var FormerUsers = []string{"system:kube-dns", "system:kube-ingress", "system:kube-network", "system:metrics-server"}
