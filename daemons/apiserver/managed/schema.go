package managed

import (
	"bytes"
	"compress/gzip"
	_ "embed" // the schema is a file
	"fmt"
	"io"

	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// schemaText describes how the fields of Kubernetes' own kinds merge: client-go's schema for server-side apply, for the
// versions that are served. client-go's package applyconfigurations, which contains it, links all versions of all kinds
// into the program. `go test ./daemons/apiserver/managed -update` writes the file.
//
//go:embed schema.yaml.gz
var schemaText []byte

// Schema returns the parser for the types of Kubernetes' own kinds.
func Schema() (*typed.Parser, error) {
	text, err := gzip.NewReader(bytes.NewReader(schemaText))
	if err != nil {
		return nil, fmt.Errorf("read the schema of the built-in kinds: %w", err)
	}
	plain, err := io.ReadAll(text)
	if err != nil {
		return nil, fmt.Errorf("read the schema of the built-in kinds: %w", err)
	}
	parser, err := typed.NewParser(typed.YAMLObject(plain))
	if err != nil {
		return nil, fmt.Errorf("read the schema of the built-in kinds: %w", err)
	}
	return parser, nil
}
