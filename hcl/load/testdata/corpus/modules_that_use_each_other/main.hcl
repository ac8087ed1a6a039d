cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

module "a" {
  source = "./pass"
  first  = "x"
  second = module.b.first
}
module "b" {
  source = "./pass"
  first  = module.a.first
  second = "y"
}
output "both" { value = "${module.a.second} ${module.b.second}" }
