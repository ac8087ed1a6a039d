cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

workload "db" {
  container "db" {
    image = "postgres"
  }
}
workload "web" {
  depends_on = [workload.bd]
  container "web" {
    image = "nginx"
  }
}
