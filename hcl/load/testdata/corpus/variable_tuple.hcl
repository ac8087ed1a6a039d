cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

variable "x" {
  type    = tuple([string, number])
  default = ["a", 1]
}
output "x" { value = var.x[1] }
