cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
  labels  = { "kubernetes.io/hostname" = "other", "kubernetes.io/os" = "linux" }
  taints  = ["a=b:NoSchedule", "a=c:NoSchedule", "a=c:NoExecute"]
}
machine "own" {
  address = "192.0.2.2"
  roles   = ["node"]
  labels  = { "kubernetes.io/hostname" = "own" }
}
storage_class "Fast_1" {
  name   = "Fast_1"
  labels = { "bad label" = "x" }
}
storage_class "zones" {
  provisioner = "Example.com/x y"
}
image "Web_1" {
  archive = "web.tar"
}
load_balancer "Pool_1" {
  name      = "Pool_1"
  addresses = ["192.0.2.50-192.0.2.60"]
}
