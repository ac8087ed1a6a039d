cluster "c" {
  system {
    packages = ["nfs-common=1.2", "--reinstall"]
    upgrade  = "some"
    reboot   = "always"
    window {
      days     = ["saturday"]
      from     = "25:00"
      to       = "4"
      timezone = "Mars/Olympus"
    }
  }
  roll { pause = "25h" }
}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}
