// Package jsonpatch applies JSON patches (RFC 6902) that others send, clients and webhooks, within
// bounds and without failing on what makes no sense. How an operation is done is the library's
// business; what becomes of an error, its user's.
package jsonpatch

import (
	"fmt"
	"sync"

	library "gopkg.in/evanphx/json-patch.v4"
)

// Patch is a list of operations.
type Patch = library.Patch

// Decode reads a patch.
func Decode(text []byte) (Patch, error) { return library.DecodePatch(text) }

// largest is what the copies of one patch may add up to: a short patch could make an object of
// any size. It is what a request may have.
const largest = 3 << 20

// boundCopies sets the bound, of which the library has one for all.
var boundCopies = sync.OnceFunc(func() { library.AccumulatedCopySizeLimit = largest })

// Apply returns a document as a patch makes it.
func Apply(patch Patch, document []byte) ([]byte, error) {
	boundCopies()
	for _, op := range patch {
		// The library takes the value for given when it compares the whole document.
		if _, given := op["value"]; !given && op.Kind() == "test" {
			if path, err := op.Path(); err == nil && path == "" {
				return nil, fmt.Errorf(
					"testing the whole document failed: the operation has no value: %w",
					library.ErrTestFailed,
				)
			}
		}
	}
	return patch.Apply(document)
}
