cluster "c" {
  api {
    endpoint = "192.0.2.100"
  }
}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

