cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

data "object" "config" {
  depends_on  = [machine.m]
  api_version = "v1"
  kind        = "ConfigMap"
  name        = "settings"
}
