cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

module "shop" {
  source   = "./web"
  for_each = { red = "nginx:1", blue = "nginx:2" }
  image    = each.value
}
output "red" { value = module.shop["red"].host }
output "all" { value = { for k, m in module.shop : k => m.name } }
