cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

variable "teams" {
  default   = { a = 1 }
  sensitive = true
}
workload "web" {
  for_each = var.teams
  container "web" {
    image = "nginx"
  }
}
