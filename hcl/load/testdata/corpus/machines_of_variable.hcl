cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

variable "nodes" {
  type = map(object({ address = string, zone = optional(string, "a") }))
  default = {
    x = { address = "192.0.2.11" }
    y = { address = "192.0.2.12", zone = "b" }
  }
}
machine "n" {
  for_each = var.nodes
  address  = each.value.address
  roles    = ["node"]
  labels   = { zone = each.value.zone }
}
output "zones" { value = distinct([for n in machine.n : n.labels.zone]) }
