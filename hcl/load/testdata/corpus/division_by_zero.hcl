cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

locals {
  none = 0
  even = { for n in [0, 2] : n => 4 / n }
  safe = local.none == 0 ? 0 : 1 / local.none
  tried = try(1 / local.none, 7)
}
variable "v" {
  default = 1
  validation {
    condition     = 1 / var.v > 5 % (var.v - 1)
    error_message = "x"
  }
}
output "x" { value = 1 / local.none }
output "rest" { value = 5 % 0 }
output "fine" { value = [local.safe, local.tried, 7 / 2, 7 % 2] }
output "log" { value = log(0, 10) }
workload "web" {
  replicas = "${1 / 0}"
  container "web" { image = "nginx" }
}
