cluster "c" {
  service_cidrs = ["10.96.0.0/30"]
}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

