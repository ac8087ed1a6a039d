cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

workload "web" {
  namespace = "a"
  container "web" {
    image = "nginx"
  }
}
workload "other" {
  name      = "web"
  namespace = "b"
  container "web" {
    image = "nginx"
  }
}
