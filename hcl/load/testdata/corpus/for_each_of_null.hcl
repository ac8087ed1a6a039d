cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

machine "n" {
  for_each = null
  address  = "192.0.2.9"
  roles    = ["node"]
}
