cluster "c" {}
machine "m" {
  address = var.address
  roles   = ["control-plane"]
}
module "inner" {
  source = "./inner"
  name   = "x"
}
output "y" { value = module.inner.out }
