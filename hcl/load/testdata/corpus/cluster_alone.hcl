cluster "c" {}
