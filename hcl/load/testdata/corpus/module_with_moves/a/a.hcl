machine "new" {
  address = "192.0.2.2"
  roles   = ["node"]
  lifecycle { prevent_destroy = true }
}
moved {
  from = machine.old
  to   = machine.new
}
moved {
  from = machine.older
  to   = machine.newer
}
