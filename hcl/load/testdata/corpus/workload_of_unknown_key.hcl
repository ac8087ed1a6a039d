cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

workload "web" {
  for_each = toset(["a"])
  container "web" {
    image = "nginx"
  }
}
output "x" {
  value = workload.web["z"].host
}
