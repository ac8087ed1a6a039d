cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

variable "bastion" { default = "bastion.example.com" }
machine "n" {
  address = "192.0.2.2"
  roles   = ["node"]
  dynamic "ssh" {
    for_each = var.bastion == "" ? [] : [var.bastion]
    content {
      jump = ssh.value
    }
  }
}
