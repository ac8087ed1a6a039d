cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

module "shop" {
  source   = "./web"
  for_each = toset(["a"])
  image    = "nginx"
}
output "x" { value = module.shop["a"].hots }
