# The control plane as static pods of a kubelet, as kubeadm has it.

cluster "home" {
  control_plane = "static-pods"
}

machine "control" {
  address = "10.99.0.11"
  roles   = ["control-plane"] # and a node that other pods keep away from
  ssh { user = "admin" }
}

machine "node" {
  address = "10.99.0.21"
  roles   = ["node"]
  ssh { user = "admin" }
}
