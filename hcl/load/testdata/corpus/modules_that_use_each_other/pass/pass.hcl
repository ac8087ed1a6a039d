variable "first" {}
variable "second" {}
output "first" { value = "${var.first}!" }
output "second" { value = var.second }
