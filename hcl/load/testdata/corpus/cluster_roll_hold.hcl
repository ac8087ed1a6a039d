cluster "c" {
  roll {
    hold       = "1m"
    timeout    = "90s"
    on_failure = "continue"
  }
}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}
