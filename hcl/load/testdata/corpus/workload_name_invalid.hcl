cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

workload "web" {
  name = "9web"
  container "web" {
    image = "nginx"
  }
}
