cluster "other" {}
