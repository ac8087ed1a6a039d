cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

workload "web" {
  init_container "prepare" {
    image   = "busybox"
    command = ["true"]
  }
  container "web" {
    image = "nginx"
  }
}
