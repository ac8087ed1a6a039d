cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

check "fine" {
  assert {
    condition     = alltrue([for r in machine.m.roles : contains(["node", "control-plane"], r)])
    error_message = "No."
  }
}
