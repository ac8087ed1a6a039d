cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

workload "web" {
  count = 2
  name  = "shop-${count.index}"
  container "web" {
    image = "nginx"
  }
}
output "second" { value = workload.web[1].host }
