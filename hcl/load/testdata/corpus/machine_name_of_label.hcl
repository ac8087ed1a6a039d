cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

machine "Web_One" {
  address = "192.0.2.2"
  roles   = ["node"]
}
