cluster "c" {
  system {
    window {
      from = "02:00"
      to   = "04:00"
    }
  }
}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}
