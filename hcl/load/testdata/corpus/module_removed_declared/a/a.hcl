machine "x" {
  address = "192.0.2.2"
  roles   = ["node"]
}

workload "w" {
  container "w" { image = "nginx" }
}
