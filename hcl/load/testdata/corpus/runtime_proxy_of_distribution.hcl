cluster "c" {
  runtime {
    source = "distribution"
    proxy {
      http = "http://proxy.example.com:3128"
    }
  }
}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}
