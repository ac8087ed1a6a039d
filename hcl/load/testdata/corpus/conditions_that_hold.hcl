cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

workload "web" {
  for_each = { a = 1, b = 2 }
  replicas = each.value
  container "web" {
    image = "nginx"
  }
  precondition {
    condition     = each.value > 0
    error_message = "None."
  }
  postcondition {
    condition     = self.name == "web-${each.key}"
    error_message = "Named ${self.name}."
  }
}
check "nodes" {
  assert {
    condition     = length(machine.m.roles) == 2
    error_message = "Few."
  }
}
output "x" {
  value = 1
  postcondition {
    condition     = self == 1
    error_message = "Not one."
  }
}
