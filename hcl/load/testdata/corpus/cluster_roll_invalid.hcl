cluster "c" {
  roll {
    max_unavailable = "some"
  }
}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

