cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

variable "x" {
  type    = object({ a = string, b = optional(number, 3) })
  default = { a = "x" }
}
output "x" { value = var.x }
