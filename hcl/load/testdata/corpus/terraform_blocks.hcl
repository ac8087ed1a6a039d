terraform {
  required_version = ">= 1.5"
}
provider "helm" {}
resource "null_resource" "x" {}
bananas {}
cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

