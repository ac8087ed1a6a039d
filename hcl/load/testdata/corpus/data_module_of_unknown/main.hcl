cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

data "external" "net" {
  program = ["./addresses"]
}
module "a" {
  source   = "./a"
  replicas = data.external.net.result.n
}
module "several" {
  source   = "./a"
  for_each = data.external.net.result
  replicas = 1
}
output "x" { value = module.a.name }
output "y" { value = module.several }
