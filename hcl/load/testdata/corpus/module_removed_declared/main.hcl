cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}
module "rack" { source = "./a" }

removed {
  from = module.rack
  lifecycle { destroy = false }
}
