cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

data "external" "names" { program = ["names"] }

machine "n" {
  for_each = data.external.names.result
  address  = each.value
  roles    = ["node"]
}

workload "w" {
  for_each = data.external.names.result
  container "w" { image = "nginx" }
}

moved {
  from = machine.old
  to   = machine.n["a"]
}

import { to = workload.w["a"] }
