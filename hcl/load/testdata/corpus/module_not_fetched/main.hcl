cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

module "shop" {
  source = "git::https://git.example.com/modules.git//web?ref=v1"
}
