variable "name" {}
variable "first" { type = number }
locals { prefix = "192.0.2." }
module "inner" {
  source  = "./inner"
  count   = 2
  address = "${local.prefix}${var.first + count.index}"
  label   = "${var.name}-${count.index}"
}
output "addresses" { value = module.inner[*].address }
