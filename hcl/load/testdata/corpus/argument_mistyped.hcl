cluster "c" {}

machine "m" {
  adress = "192.0.2.1"
  rols   = ["control-plane", "node"]
}
machine "n" {
  color = "red"
}
workload "x" {
  container "y" { imag = "nginx" }
  service { prots = { a = 1 } }
}
check "z" {
  assert {
    conditon      = true
    error_message = "x"
  }
}
data "file" "f" { pat = "x" }
