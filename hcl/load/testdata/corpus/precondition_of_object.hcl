cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

object "v1" "ConfigMap" "x" {
  data = { a = "b" }
  precondition {
    condition     = machine.m.name == "x"
    error_message = "No."
  }
}
