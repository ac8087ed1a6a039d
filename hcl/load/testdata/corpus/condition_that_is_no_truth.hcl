cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

check "x" {
  assert {
    condition     = "perhaps"
    error_message = "No."
  }
}
