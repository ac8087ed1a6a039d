variable "from" { type = number }
machine "n" {
  for_each = { a = 1, b = 2 }
  address  = "192.0.2.${var.from + each.value}"
  roles    = ["node"]
}
object "v1" "Namespace" "n" {
  count = 1
}
