cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

variable "volumes" {
  default   = { a = "/a" }
  sensitive = true
}
workload "web" {
  container "web" {
    image = "nginx"
  }
  dynamic "volume" {
    for_each = var.volumes
    labels   = [volume.key]
    content {
      host_path = volume.value
    }
  }
}
