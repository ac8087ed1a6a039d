cluster "c" {
  pod_cidrs = ["everywhere"]
}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

