cluster "c" {
  api {
    endpoint = "api.example.com:6443"
  }
}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

