cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

data "object" "config" {
  api_version = "v1"
  kind        = "ConfigMap"
  name        = "settings"
}
object "v1" "ConfigMap" "copy" {
  data = data.object.config.object.data
}
