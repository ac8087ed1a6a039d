# One machine does everything: control plane and node.

variable "address" {
  type        = string
  default     = "10.99.0.11"
  description = "address of the machine"
}

cluster "single" {}

machine "one" {
  address = var.address
  roles   = ["control-plane", "node"]
  ssh {
    user = "root"
  }
}

workload "hello" {
  container "agnhost" {
    image = "registry.k8s.io/e2e-test-images/agnhost:2.53"
    args  = ["netexec", "--http-port=8080"]
    ports = { http = 8080 }
  }
  service {
    ports      = { http = 80 }
    node_ports = { http = 30080 }
  }
}
