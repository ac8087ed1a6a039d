cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

workload "web" {
  for_each  = { a = 1, b = 2 }
  namespace = "shop"
  replicas  = each.value
  container "web" {
    image = "nginx:${each.key}"
  }
}

output "host" { value = workload.web["b"].host }
output "all" { value = [for w in workload.web : w.name] }
