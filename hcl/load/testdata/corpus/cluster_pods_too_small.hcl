cluster "c" {
  pod_cidrs = ["10.244.0.0/28"]
}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

