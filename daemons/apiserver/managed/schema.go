package managed

import (
	"bytes"
	"compress/gzip"
	_ "embed" // the schema is a file
	"encoding/gob"
	"fmt"

	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// schemaFile is how the fields of Kubernetes' own kinds merge: client-go's schema for server-side apply, for the
// versions that are served, as a gzipped gob of a schema.Schema. To read the same schema as YAML takes 20 times as
// long, at every start. client-go's package applyconfigurations, which contains it, links all versions of all kinds
// into the program. `go test ./daemons/apiserver/managed -update` writes the file.
//
//go:embed schema.gob.gz
var schemaFile []byte

// Schema returns the parser for the types of Kubernetes' own kinds.
func Schema() (*typed.Parser, error) {
	plain, err := gzip.NewReader(bytes.NewReader(schemaFile))
	if err != nil {
		return nil, fmt.Errorf("read the schema of the built-in kinds: %w", err)
	}
	registerDefaults()
	parser := &typed.Parser{}
	if err := gob.NewDecoder(plain).Decode(&parser.Schema); err != nil {
		return nil, fmt.Errorf("read the schema of the built-in kinds: %w", err)
	}
	return parser, nil
}

// registerDefaults registers with gob the type that the defaults of some fields have: an empty map.
func registerDefaults() { gob.Register(map[any]any{}) }
