package wire

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	kjson "sigs.k8s.io/json"
)

// This file handles CBOR, for clients that ask for it. It has the same data model as JSON, so it is converted from and
// to JSON.

// cborTag is the tag at the start of CBOR, which distinguishes it from other encodings.
const cborTag = "\xd9\xd9\xf7"

// FromCBOR returns the JSON of an object in CBOR.
func FromCBOR(data []byte) ([]byte, error) {
	var v any
	if err := direct.Unmarshal(data, &v); err != nil {
		return nil, fmt.Errorf("decode CBOR: %w", err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("read CBOR as JSON: %w", err)
	}
	return out, nil
}

// appendCBOR appends the CBOR of an object in JSON.
func appendCBOR(to, data []byte) ([]byte, error) {
	var v any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &v); err != nil {
		return to, fmt.Errorf("read JSON for CBOR: %w", err)
	}
	out, err := direct.Marshal(v)
	if err != nil {
		return to, fmt.Errorf("encode CBOR: %w", err)
	}
	return append(append(to, cborTag...), out...), nil
}
