cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

data "external" "net" {
  program = ["./addresses"]
  timeout = "1h"
}
