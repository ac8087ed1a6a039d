cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

output "a" { value = machine.zz.name }
output "b" { value = foo.bar }
output "c" { value = mxa(1) }
output "d" { value = machin.m.name }
output "e" { value = local.ab }
locals { q = 1 }
workload "x" {
  tags = {}
  ami  = "nginx"
  imgae = "x"
  container "y" { image = "nginx" }
}
