cluster "c" {
  system {
    packages = ["nfs-common", "chrony"]
    upgrade  = "security"
    reboot   = "when-required"
    window {
      days     = ["sat", "Sun"]
      from     = "23:30"
      to       = "04:00"
      timezone = "Europe/Berlin"
    }
  }
  roll { pause = "5m" }
}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}
