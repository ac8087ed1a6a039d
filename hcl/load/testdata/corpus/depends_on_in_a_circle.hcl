cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

workload "a" {
  depends_on = [workload.b]
  container "a" {
    image = "nginx"
  }
}
workload "b" {
  depends_on = [workload.a]
  container "b" {
    image = "nginx"
  }
}
