cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

workload "db" {
  for_each = toset(["a"])
  container "db" {
    image = "postgres"
  }
}
workload "web" {
  depends_on = [workload.db["b"]]
  container "web" {
    image = "nginx"
  }
}
