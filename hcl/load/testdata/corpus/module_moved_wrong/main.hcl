cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}
module "rack" { source = "./a" }

moved {
  from = machine.a
  to   = module.rack.workload.w
}
moved {
  from = workload.w
  to   = module.rack.workload.w
}
moved {
  from = machine.b
  to   = module.rack
}
import { to = module.rack.machine.x }
