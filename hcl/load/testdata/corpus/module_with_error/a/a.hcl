workload "web" {
  imagee = "nginx"
}
