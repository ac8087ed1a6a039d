cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

object "v1" "Namespace" "shop" {
  labels      = { team = "a" }
  annotations = { note = "b" }
}
