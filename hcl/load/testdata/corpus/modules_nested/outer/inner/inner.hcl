variable "address" {}
variable "label" {}
machine "n" {
  address = var.address
  roles   = ["node"]
  labels  = { place = var.label }
}
object "v1" "ConfigMap" "c" {
  data = { a = machine.n.name }
}
output "address" { value = machine.n.address }
