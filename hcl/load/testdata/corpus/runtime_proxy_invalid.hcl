cluster "c" {
  runtime {
    proxy {
      https    = "proxy.example.com:3128"
      no_proxy = ["a,b"]
    }
  }
}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}
