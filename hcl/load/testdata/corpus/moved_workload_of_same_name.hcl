cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

workload "site" {
  name = "web"
  container "w" { image = "nginx" }
}

moved {
  from = workload.web
  to   = workload.site
}
