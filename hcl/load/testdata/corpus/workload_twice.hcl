cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

workload "web" {
  container "web" {
    image = "nginx"
  }
}
workload "web" {
  container "web" {
    image = "nginx"
  }
}
