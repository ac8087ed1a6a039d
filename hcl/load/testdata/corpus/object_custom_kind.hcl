cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

object "example.com/v1" "Widget" "w" {
  spec = { size = 3, ratio = 0.5, on = true, none = null }
}
