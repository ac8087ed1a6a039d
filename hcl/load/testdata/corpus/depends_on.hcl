cluster "c" {}

machine "m" {
  address = "192.0.2.1"
  roles   = ["control-plane", "node"]
}

workload "db" {
  container "db" {
    image = "postgres"
  }
}
object "v1" "Secret" "key" {
  namespace  = "shop"
  stringData = { a = "b" }
}
object "apps/v1" "Deployment" "x" {
  depends_on = [object.v1.Secret.key]
  spec       = {}
}
workload "web" {
  for_each   = toset(["a"])
  depends_on = [workload.db, "object.apps/v1.Deployment.x", machine.m]
  container "web" {
    image = "nginx"
  }
}
