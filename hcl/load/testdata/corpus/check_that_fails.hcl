cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

variable "wanted" { default = 3 }
check "nodes" {
  assert {
    condition     = length(machine.m.roles) == var.wanted
    error_message = "There are ${length(machine.m.roles)} roles."
  }
  assert {
    condition     = machine.m.name == "m"
    error_message = "Not m."
  }
}
