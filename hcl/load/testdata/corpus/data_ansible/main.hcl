cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

data "ansible_inventory" "all" {
  for_each = toset(["hosts.ini", "hosts.yaml", "hosts.json"])
  path     = each.key
}
machine "n" {
  for_each = { for name, h in data.ansible_inventory.all["hosts.ini"].hosts : name => h if contains(h.groups, "nodes") }
  name     = split(".", each.key)[0]
  address  = each.value.address
  port     = each.value.port
  roles    = ["node"]
  labels   = { zone = each.value.vars.zone }
  ssh {
    user = each.value.user
  }
}
output "groups" { value = { for k, d in data.ansible_inventory.all : k => d.groups } }
output "hosts" { value = { for k, d in data.ansible_inventory.all : k => d.hosts } }
