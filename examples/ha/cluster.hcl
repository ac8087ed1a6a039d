# Three control-plane machines and three nodes: any one machine may die.

cluster "home" {
  pod_cidrs     = ["10.244.0.0/16"]
  service_cidrs = ["10.96.0.0/16"]

  api {
    endpoint = "10.99.0.100:6443" # an address that no machine has: held by one of the control plane
  }
}

variable "nodes" {
  type = map(object({ address = string, zone = optional(string, "a") }))
  validation {
    condition     = length(var.nodes) >= 2
    error_message = "Workloads need two nodes at least to survive the loss of one."
  }
}

machine "control" {
  for_each = toset(["10.99.0.11", "10.99.0.12", "10.99.0.13"])
  address  = each.key
  roles    = ["control-plane"]
  ssh { user = "admin" }
}

machine "node" {
  for_each = var.nodes
  address  = each.value.address
  name     = each.key
  roles    = ["node"]
  labels   = { "topology.kubernetes.io/zone" = each.value.zone }
  ssh { user = "admin" }
}
