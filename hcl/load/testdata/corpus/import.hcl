cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

workload "web" {
  container "a" { image = "x" }
}

object "v1" "ConfigMap" "motd" {
  data = { motd = "hello" }
}

import {
  to = workload.web
}

import {
  to = "object.v1.ConfigMap.motd"
}
