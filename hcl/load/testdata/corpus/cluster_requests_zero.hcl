cluster "c" {
  api {
    max_requests_inflight = 0
  }
}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

