cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

module "shop" {
  source = "./web"
  count  = 2
  image  = "nginx:${count.index}"
}
output "second" { value = module.shop[1].name }
output "all" { value = module.shop[*].name }
