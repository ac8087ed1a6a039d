cluster "c" {
  precondition {
    condition     = true
    error_message = "x"
  }
}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

