manifests "all" {
  files = ["*.yaml"]
}
output "text" { value = [file("text.txt"), file("${path.module}/text.txt"), basename(path.module)] }
