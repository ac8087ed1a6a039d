cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

workload "web" {
  config = { "site.conf" = "on" }
  container "web" {
    image = "web:1"
    ports = { http = 8080 }
  }
  service { ports = { http = 80 } }
}

object "apps/v1" "Deployment" "web" {
  namespace = "default"
}

object "v1" "Service" "web" {}

object "v1" "ConfigMap" "web" {
  namespace = "shop" # another one
}

object "v1" "ConfigMap" "default/web" {
  metadata = { name = "web", namespace = "default" }
}

object "v1" "ConfigMap" "twice" {}

object "v1" "ConfigMap" "second" {
  metadata = { name = "twice", namespace = "default" }
}
