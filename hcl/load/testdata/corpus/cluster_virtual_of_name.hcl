cluster "c" {
  api {
    endpoint = "api.example.com:6443"
    virtual  = true
  }
}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

