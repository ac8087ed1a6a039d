cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

workload "web" {
  for_each = toset(["x"])
  dynamic "container" {
    for_each = ["a", "b"]
    iterator = it
    labels   = ["${each.key}-${it.value}"]
    content {
      image = "nginx:${it.key}"
    }
  }
}
