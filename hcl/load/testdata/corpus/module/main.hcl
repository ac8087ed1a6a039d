cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

module "shop" {
  source   = "./web"
  image    = "nginx"
  replicas = 2
}
output "host" { value = module.shop.host }
