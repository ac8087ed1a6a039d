package apiserver

import (
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kjson "sigs.k8s.io/json"
)

// mergePatch returns the JSON of a document as a merge patch (RFC 7396) makes it. Both are read once, as
// a whole: patches that read each level anew take time by the square of their depth.
func mergePatch(before, patch []byte) ([]byte, error) {
	var document, change any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(before, &document); err != nil {
		return nil, fmt.Errorf("read the document to patch: %w", err)
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(patch, &change); err != nil || !structured(change) {
		return nil, apierrors.NewBadRequest("Invalid JSON Patch")
	}
	after, err := json.Marshal(patchedBy(document, change))
	if err != nil {
		return nil, fmt.Errorf("encode what was patched: %w", err)
	}
	return after, nil
}

// structured says whether a value may be a patch. By the RFC any may, and would replace the document: null, as
// what a client sends that has nothing to send, would empty an object.
func structured(change any) bool {
	switch change.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}

// patchedBy returns a value as a change makes it: objects are merged, null removes, and anything else replaces.
func patchedBy(value, change any) any {
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
			object[key] = patchedBy(object[key], to)
		}
	}
	return object
}
