cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

output "x" { value = { up = upper("a"), n = length([1, 2]), c = cidrhost("192.0.2.0/24", 5) } }
