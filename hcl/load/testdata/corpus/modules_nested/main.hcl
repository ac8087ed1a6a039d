cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

module "outer" {
  source   = "./outer"
  for_each = toset(["a", "b"])
  name     = each.key
  first    = each.key == "a" ? 20 : 30
}
output "addresses" { value = [for m in module.outer : m.addresses] }
