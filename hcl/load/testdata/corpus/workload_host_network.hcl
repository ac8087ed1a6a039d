cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

workload "web" {
  host_network  = true
  node_selector = { zone = "a" }
  container "web" {
    image = "nginx"
  }
}
