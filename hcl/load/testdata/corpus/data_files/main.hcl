cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

data "file" "motd" {
  path = "motd.txt"
}
data "yaml" "settings" {
  path = "settings.yaml"
}
data "json" "more" {
  for_each = toset(["more.json"])
  path     = each.key
}
output "all" {
  value = [data.file.motd.content, data.file.motd.sha256, data.yaml.settings.value.a[1], data.json.more["more.json"].value.b]
}
