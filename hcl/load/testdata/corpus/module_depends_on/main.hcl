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
module "shop" {
  source     = "./web"
  image      = "nginx"
  depends_on = [workload.db]
}
object "v1" "ConfigMap" "last" {
  depends_on = [module.shop]
  data       = {}
}
