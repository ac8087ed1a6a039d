cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

variable "password" {
  default   = "hunter22"
  sensitive = true
}
check "x" {
  assert {
    condition     = length(var.password) > 20
    error_message = "${var.password} is short."
  }
}
