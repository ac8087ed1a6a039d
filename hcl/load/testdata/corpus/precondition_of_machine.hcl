cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

locals { addresses = { a = "192.0.2.5", b = "198.51.100.5" } }
machine "n" {
  for_each = local.addresses
  address  = each.value
  roles    = ["node"]
  precondition {
    condition     = startswith(each.value, "192.0.2.")
    error_message = "${each.key} is in another network."
  }
}
