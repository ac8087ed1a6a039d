cluster "c" {
  roll {
    max_unavailable = "25%"
  }
}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

