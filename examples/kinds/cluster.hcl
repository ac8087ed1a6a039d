# Every kind of workload, with the objects that belong to it.

cluster "shop" {}

variable "password" {
  type      = string
  default   = "change-me"
  sensitive = true
}

machine "control" {
  address = "10.99.0.11"
  roles   = ["control-plane", "node"]
}

workload "database" {
  kind           = "StatefulSet"
  namespace      = "shop"
  pod_management = "Parallel"
  secrets        = { password = var.password }

  container "postgres" {
    image      = "docker.io/library/postgres:18"
    ports      = { sql = 5432 }
    secret_env = { POSTGRES_PASSWORD = "password" }
    mounts     = { "/var/lib/postgresql" = "data" }
  }
  claim "data" {
    size         = "10Gi"
    access_modes = ["ReadWriteOnce"]
  }
  service { ports = { sql = 5432 } }
  network_policy {
    ingress {
      from  = ["web", "backup"]
      ports = ["sql"]
    }
  }
}

workload "web" {
  namespace       = "shop"
  strategy        = "RollingUpdate"
  max_surge       = 1
  max_unavailable = 0
  min_ready       = "5s"

  container "web" {
    image    = "docker.io/library/nginx:1.29"
    ports    = { http = 80 }
    requests = { cpu = "100m", memory = "64Mi" }
    mounts   = { "/uploads" = "uploads" }
  }
  storage "uploads" { size = "1Gi" }
  service { ports = { http = 80 } }
  ingress {
    host       = "shop.example"
    tls_secret = "shop-tls"
    paths      = { "/" = "http" }
  }
  autoscaling {
    min = 2
    max = 10
    cpu = 70
  }
  budget { max_unavailable = 1 }
}

workload "agent" {
  kind            = "DaemonSet"
  namespace       = "shop"
  max_unavailable = "10%"
  container "agent" {
    image = "docker.io/library/busybox:1.37"
    args  = ["sleep", "infinity"]
  }
}

workload "migrate" {
  kind               = "Job"
  namespace          = "shop"
  backoff_limit      = 2
  active_deadline    = "10m"
  ttl_after_finished = "24h"
  depends_on         = [workload.database]
  container "migrate" {
    image = "docker.io/library/busybox:1.37"
    args  = ["true"]
  }
}

workload "backup" {
  kind               = "CronJob"
  namespace          = "shop"
  schedule           = "0 3 * * *"
  time_zone          = "Europe/Berlin"
  concurrency        = "Forbid"
  starting_deadline  = "10m"
  successful_history = 1
  container "backup" {
    image      = "docker.io/library/postgres:18"
    args       = ["pg_dump", "-h", workload.database.host]
    secret_env = { PGPASSWORD = "database/password" }
  }
}
