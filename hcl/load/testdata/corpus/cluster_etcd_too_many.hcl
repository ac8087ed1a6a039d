cluster "c" {
  etcd {
    members = 9
  }
}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

