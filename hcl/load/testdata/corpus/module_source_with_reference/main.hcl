cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

locals { dir = "./web" }
module "shop" {
  source = local.dir
  image  = "nginx"
}
