cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

data "external" "net" {
  program = ["./addresses"]
  query   = { zone = "a" }
}
locals {
  address = data.external.net.result.address
  known   = { a = 1, b = data.external.net.result.b }
}
machine "n" {
  address = local.address
  roles   = ["node"]
}
workload "web" {
  replicas = local.known.a
  container "web" {
    image = "nginx"
  }
}
output "address" { value = machine.n.address }
output "fine" { value = local.known.a }
