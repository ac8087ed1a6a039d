cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

machine "n" {
  count   = -1
  address = "192.0.2.9"
  roles   = ["node"]
}
