// Package jsonpatch applies JSON patches (RFC 6902) from clients and webhooks, within limits and without panicking on
// invalid ones. A library implements the operations, and callers convert the errors.
package jsonpatch

import (
	"fmt"
	"sync"

	library "gopkg.in/evanphx/json-patch.v4"
)

// Patch is a list of operations.
type Patch = library.Patch

// Decode parses a patch.
func Decode(text []byte) (Patch, error) { return library.DecodePatch(text) }

// maxCopiedBytes is how many bytes the copy operations of one patch may copy in total. Without it, a short patch could
// create an object of any size. It is the maximum size of a request.
const maxCopiedBytes = 3 << 20

// limitCopies sets the limit, which is global in the library.
var limitCopies = sync.OnceFunc(func() { library.AccumulatedCopySizeLimit = maxCopiedBytes })

// Apply returns a document after a patch.
func Apply(patch Patch, document []byte) ([]byte, error) {
	limitCopies()
	for _, op := range patch {
		// The library would panic on a missing value when it compares the whole document.
		if _, given := op["value"]; !given && op.Kind() == "test" {
			if path, err := op.Path(); err == nil && path == "" {
				return nil, fmt.Errorf("testing the whole document failed: the operation has no value: %w",
					library.ErrTestFailed)
			}
		}
	}
	return patch.Apply(document)
}
