cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

workload "none" {
  count = 0
  container "web" {
    image = "nginx"
  }
}
workload "keyed" {
  for_each = { red = 1, blue = 2 }
  container "web" {
    image = "nginx"
  }
}
workload "empty" {
  for_each = {}
  container "web" {
    image = "nginx"
  }
}
output "first" { value = workload.none[0].host }
output "key" { value = workload.keyed["rad"].host }
output "of_empty" { value = workload.empty["a"].host }
output "of_one" { value = machine.m[0].name }
output "guarded" { value = length(workload.none) > 0 ? workload.none[0].host : one(workload.none[*].host) }
