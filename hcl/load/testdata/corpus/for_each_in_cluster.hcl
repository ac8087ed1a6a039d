cluster "c" {
  for_each = toset(["a"])
}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

