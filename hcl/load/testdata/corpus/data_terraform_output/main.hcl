cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

data "terraform_output" "infra" {
  path = "outputs.json"
}
data "terraform_output" "state" {
  path = "terraform.tfstate"
}
machine "n" {
  for_each = data.terraform_output.infra.outputs.nodes
  address  = each.value
  roles    = ["node"]
}
output "zone" { value = data.terraform_output.state.outputs.zone }
output "password" {
  value     = data.terraform_output.infra.outputs.password
  sensitive = true
}
