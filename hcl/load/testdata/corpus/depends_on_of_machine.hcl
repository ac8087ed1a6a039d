cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

machine "n" {
  address    = "192.0.2.2"
  roles      = ["node"]
  depends_on = [machine.m]
}
