cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

data "file" "motd" {
  path = "nowhere.txt"
}
output "text" { value = data.file.motd.content }
