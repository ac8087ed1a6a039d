cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

workload "web" {
  container "web" {
    image = "nginx"
  }
  dynamic "volume" {
    for_each = local.volumes
    labels   = [volume.value]
    content {
      empty_dir = true
    }
  }
}
