cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
  lifecycle { ignore_changes = [labels] }
}
storage_class "s" {
  lifecycle { ignore_changes = all }
}
workload "web" {
  container "web" {
    image = "nginx"
  }
  lifecycle {
    ignore_changes = [labels, container["wep"].image]
  }
}
object "apps/v1" "Deployment" "d" {
  spec = {}
  lifecycle {
    ignore_changes = [spec.replica, metadata.name, status, kind, spec.template.spec.containers[0].image, spec.template.spec.tolerations["a"], "spec replicas", spec.selector[*]]
  }
}
object "v1" "ConfigMap" "c" {
  lifecycle { ignore_changes = data }
}
