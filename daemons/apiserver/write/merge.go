package write

import (
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kjson "sigs.k8s.io/json"
)

// mergePatch returns the JSON of a document after a merge patch (RFC 7396). It decodes both only once. Decoding each
// level again takes time quadratic in the depth.
func mergePatch(before, patch []byte) ([]byte, error) {
	var document, change any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(before, &document); err != nil {
		return nil, fmt.Errorf("read the document to patch: %w", err)
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(patch, &change); err != nil || !isObjectOrList(change) {
		return nil, apierrors.NewBadRequest("Invalid JSON Patch")
	}
	after, err := json.Marshal(applyMerge(document, change))
	if err != nil {
		return nil, fmt.Errorf("encode what was patched: %w", err)
	}
	return after, nil
}

// isObjectOrList reports whether a value is accepted as a patch. RFC 7396 allows any value, and a scalar replaces the
// document. But a client without data may send null, and that would empty an object.
func isObjectOrList(change any) bool {
	switch change.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}

// applyMerge returns a value after a change: objects are merged, null removes a member, and any other value replaces.
func applyMerge(value, change any) any {
	changes, ok := change.(map[string]any)
	if !ok {
		return change
	}
	object, ok := value.(map[string]any)
	if !ok {
		object = map[string]any{}
	}
	for key, to := range changes {
		if to == nil {
			delete(object, key)
		} else {
			object[key] = applyMerge(object[key], to)
		}
	}
	return object
}
