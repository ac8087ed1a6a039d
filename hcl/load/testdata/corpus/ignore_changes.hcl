cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

workload "web" {
  container "web" {
    image = "nginx"
  }
  lifecycle {
    ignore_changes = [replicas, container.web.image]
  }
}
object "apps/v1" "Deployment" "d" {
  spec = {}
  lifecycle {
    ignore_changes = [spec.replicas, annotations["example.com/x"], spec.template.spec.containers["web"].resources.limits["cpu"]]
  }
}
object "example.com/v1" "Widget" "w" {
  spec = {}
  lifecycle { ignore_changes = all }
}
