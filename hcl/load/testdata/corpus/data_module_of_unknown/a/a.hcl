variable "replicas" {
  type = number
  validation {
    condition     = var.replicas > 0
    error_message = "At least one."
  }
}
workload "web" {
  replicas = var.replicas
  container "web" {
    image = "nginx"
  }
}
output "name" { value = workload.web.name }
