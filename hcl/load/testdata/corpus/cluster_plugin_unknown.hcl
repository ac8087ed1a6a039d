cluster "c" {
  api {
    enable_admission_plugins = ["Everything"]
  }
}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

