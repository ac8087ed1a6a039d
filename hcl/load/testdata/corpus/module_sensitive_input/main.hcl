cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

variable "password" {
  default   = "hunter22"
  sensitive = true
}
module "a" {
  source = "./pass"
  in     = var.password
}
