variable "image" { type = string }
variable "replicas" {
  type    = number
  default = 1
  validation {
    condition     = var.replicas > 0
    error_message = "At least one."
  }
}
workload "web" {
  namespace = "shop"
  replicas  = var.replicas
  container "web" {
    image = var.image
  }
}
output "host" { value = workload.web.host }
output "name" { value = workload.web.name }
