cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

data "file" "x" {
  path = "postcondition_of_data.hcl"
  postcondition {
    condition     = length(self.content) < 10
    error_message = "Too long."
  }
}
