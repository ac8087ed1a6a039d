cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

module "a" {
  source = "./pass"
}
output "shown" { value = module.a.out }
