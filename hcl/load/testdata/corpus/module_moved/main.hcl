cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}
module "rack" { source = "./a" }

moved {
  from = module.old
  to   = module.rack
}
moved {
  from = workload.rack-w
  to   = module.rack.workload.w
}
