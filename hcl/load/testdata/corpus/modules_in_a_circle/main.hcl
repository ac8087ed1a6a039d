cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

module "a" {
  source = "./pass"
  in     = module.b.out
}
module "b" {
  source = "./pass"
  in     = module.a.out
}
