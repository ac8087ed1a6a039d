cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}
variable "a" {}
variable "b" {}
data "json" "j" { path = "data.json" }
data "yaml" "y" { path = "data.yaml" }
data "terraform_output" "t" { path = "outputs.json" }
data "ansible_inventory" "i" { path = "hosts.ini" }
data "ansible_inventory" "yaml" { path = "hosts.yaml" }
manifests "all" { files = ["objects.yaml", "object.json", "list.yaml"] }
output "values" {
  value = {
    a         = var.a
    b         = var.b
    json      = data.json.j.value
    yaml      = data.yaml.y.value
    terraform = data.terraform_output.t.outputs
    hosts     = concat(keys(data.ansible_inventory.i.hosts), keys(data.ansible_inventory.yaml.hosts))
    decoded   = [jsondecode(file("data.json")), yamldecode(file("data.yaml")), csvdecode(file("data.csv"))]
    template  = templatefile("text.tpl", { x = 1 })
  }
}
