cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

workload "web" {
  count = 1
  container "web" {
    image = "nginx"
  }
}
output "x" {
  value = workload.web[3].host
}
