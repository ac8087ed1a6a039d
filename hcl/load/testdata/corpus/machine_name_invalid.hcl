cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

machine "n" {
  name    = "Not_a_node"
  address = "192.0.2.2"
  roles   = ["node"]
}
