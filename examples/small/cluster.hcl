# One control-plane machine and two nodes.

cluster "small" {
  pod_cidrs     = ["10.244.0.0/16"]
  service_cidrs = ["10.96.0.0/16"]
}

locals {
  nodes = {
    a = "10.99.0.21"
    b = "10.99.0.22"
  }
}

machine "control" {
  address = "10.99.0.11"
  roles   = ["control-plane"]
  ssh {
    user = "root"
  }
}

machine "node" {
  for_each = local.nodes
  address  = each.value
  roles    = ["node"]
  labels   = { "topology.kubernetes.io/zone" = each.key }
  ssh {
    user = "root"
  }
}

output "api" {
  value = "https://${machine.control.address}:6443"
}
