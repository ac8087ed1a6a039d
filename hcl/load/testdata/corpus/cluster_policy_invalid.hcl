cluster "c" {
  audit {
    policy = "not: a policy"
  }
}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

