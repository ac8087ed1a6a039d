# What can run on a cluster: workloads in the short form, any API object, and
# manifests as they are.

cluster "shop" {}

variable "greeting" {
  type    = string
  default = "hello"
}

variable "password" {
  type      = string
  default   = "change-me"
  sensitive = true
}

machine "control" {
  address = "10.99.0.11"
  roles   = ["control-plane", "node"]
}

machine "node" {
  count   = 2
  address = cidrhost("10.99.0.0/24", 21 + count.index)
  roles   = ["node"]
}

object "v1" "Namespace" "shop" {
  labels = { "pod-security.kubernetes.io/enforce" = "baseline" }
}

object "v1" "ConfigMap" "motd" {
  namespace = "shop"
  data      = { text = "${var.greeting} from ${cluster.shop.version}" }
}

object "v1" "Secret" "database" {
  namespace  = "shop"
  stringData = { password = var.password }
}

workload "web" {
  namespace = "shop"
  replicas  = 3
  config    = { "index.html" = "<h1>${var.greeting}</h1>" }

  container "web" {
    image     = "docker.io/library/nginx:1.29"
    ports     = { http = 80 }
    requests  = { cpu = "100m", memory = "64Mi" }
    limits    = { memory = "128Mi" }
    env       = { GREETING = var.greeting }
    mounts    = { "/usr/share/nginx/html" = "config", "/var/cache/nginx" = "cache" }
    readiness = { http = "/", port = "http", period = 2 }
  }
  volume "cache" { empty_dir = true }
  service {
    ports      = { http = 80 }
    node_ports = { http = 30080 }
  }
}

manifests "addons" { files = ["addons/*.yaml"] }

output "web" {
  value = workload.web.host
}
