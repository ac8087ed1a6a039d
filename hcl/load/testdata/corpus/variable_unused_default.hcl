cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

variable "x" { default = [1, 2] }
output "x" { value = sum(var.x) }
