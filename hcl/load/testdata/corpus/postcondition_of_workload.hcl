cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

workload "web" {
  container "web" {
    image = "nginx"
  }
  postcondition {
    condition     = self.namespace == "shop"
    error_message = "The namespace is ${self.namespace}."
  }
}
