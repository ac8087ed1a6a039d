machine "n" {
  address = "192.0.2.9"
  roles   = ["node"]
}
