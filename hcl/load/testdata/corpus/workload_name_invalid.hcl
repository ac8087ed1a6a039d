cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

workload "web" {
  name = "web_9"
  container "web" {
    image = "nginx"
  }
}
