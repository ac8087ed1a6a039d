cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

output "x" { value = [for k, m in { a = machine.m } : "${k}=${m.address}"] }
