cluster "c" {
  encryption {
    provider = "rot13"
  }
}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

