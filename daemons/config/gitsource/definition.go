package gitsource

import _ "embed"

// Definition is the CustomResourceDefinition of GitSources, as YAML.
//
//go:embed definition.yaml
var Definition []byte
