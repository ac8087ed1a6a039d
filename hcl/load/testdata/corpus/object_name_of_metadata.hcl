cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

object "rbac.authorization.k8s.io/v1" "ClusterRole" "reader" {
  metadata = { name = "shop:reader" }
  rules    = [{ apiGroups = [""], resources = ["pods"], verbs = ["get"] }]
}
