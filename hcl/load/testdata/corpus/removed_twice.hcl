cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

removed {
  from = machine.old
}
removed {
  from = machine.old
}
