cluster "c" {
  runtime {
    proxy {
      no_proxy = ["registry.example.com"]
    }
  }
}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}
