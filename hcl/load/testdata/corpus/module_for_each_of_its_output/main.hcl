cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

module "a" {
  source   = "./pass"
  for_each = toset([module.a.out])
  in       = "x"
}
