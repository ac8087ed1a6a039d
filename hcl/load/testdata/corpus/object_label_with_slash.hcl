cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

object "apps/v1" "Deployment" "web" {
  namespace = "shop"
  spec = {
    selector = { matchLabels = { a = "b" } }
    template = { metadata = { labels = { a = "b" } }, spec = { containers = [{ name = "a", image = "b" }] } }
  }
}
