cluster "c" {
  runtime {
    proxy {
      http     = "http://proxy.example.com:3128"
      no_proxy = ["registry.example.com", "192.0.2.0/24"]
    }
  }
}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}
