cluster "c" {
  roll {
    hold       = "soon"
    timeout    = "2h"
    on_failure = "panic"
  }
}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}
