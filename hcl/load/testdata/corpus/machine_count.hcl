cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

machine "n" {
  count   = 3
  address = "192.0.2.${10 + count.index}"
  roles   = ["node"]
}
output "addresses" { value = machine.n[*].address }
