cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

locals {
  paths = { data = "/var/data", logs = "/var/log" }
}
workload "web" {
  container "web" {
    image  = "nginx"
    mounts = { for name, path in local.paths : path => name }
  }
  dynamic "volume" {
    for_each = local.paths
    labels   = [volume.key]
    content {
      host_path = volume.value
    }
  }
}
