# The demo's workload: three pods behind a Service, reachable on every machine's port 30080.

image "web" { archive = "images/web.tar" }

object "v1" "Namespace" "shop" {}

workload "web" {
  namespace = "shop"
  replicas  = 3

  container "web" {
    image     = image.web.reference
    ports     = { http = 8080 }
    env       = { GREETING = "hello from clusterctl" }
    requests  = { cpu = "50m", memory = "32Mi" }
    readiness = { http = "/healthz", port = "http", period = 2 }
  }
  service {
    ports      = { http = 80 }
    node_ports = { http = 30080 }
  }
}
