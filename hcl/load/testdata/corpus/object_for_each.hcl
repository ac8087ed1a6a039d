cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

object "v1" "Namespace" "team" {
  for_each = toset(["red", "blue"])
}
object "v1" "ConfigMap" "motd" {
  for_each  = { red = "hello", blue = "bye" }
  namespace = "team-${each.key}"
  metadata  = { name = "motd" }
  data      = { text = each.value }
}
