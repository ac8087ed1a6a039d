cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

data "terraform_output" "infra" {
  path = "outputs.json"
}
output "password" { value = data.terraform_output.infra.outputs.password }
