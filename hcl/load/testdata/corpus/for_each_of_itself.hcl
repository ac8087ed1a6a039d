cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

workload "web" {
  for_each = toset([workload.web.name])
  container "web" {
    image = "nginx"
  }
}
