output "out" {
  value     = "hunter22"
  sensitive = true
}
