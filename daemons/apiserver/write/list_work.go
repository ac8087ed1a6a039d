package write

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// The libraries of patches take time in proportion to a product: a strategic merge compares every item of a list in the
// patch with every item of the object's list, and a JSON patch may move all items of a list with each operation. A
// million takes about a quarter of a second of a strategic merge, and a fortieth of that of a JSON patch.
const (
	maxListComparisons = 2_000_000
	maxListMoves       = 20_000_000
)

// maxDepth is a depth of a document that the decoders refuse.
const maxDepth = 10_000

// listSizes are the sizes of the lists of a JSON document.
type listSizes struct {
	items   int // of all lists
	longest int // items of the longest list
}

// listSizesOf counts the items of the lists of a document.
func listSizesOf(text []byte) (sizes listSizes) {
	type level struct {
		isList, isFilled bool
		items            int
	}
	levels := []level{{}}
	for i := 0; i < len(text); i++ {
		at := &levels[len(levels)-1]
		switch c := text[i]; c {
		case ' ', '\t', '\n', '\r':
		case ',':
			at.items++
		case ']', '}':
			if len(levels) == 1 {
				return sizes // it is not valid
			}
			if at.isList && at.isFilled {
				sizes.items += at.items + 1
				sizes.longest = max(sizes.longest, at.items+1)
			}
			levels = levels[:len(levels)-1]
		default:
			at.isFilled = true
			if c == '[' || c == '{' {
				if len(levels) > maxDepth {
					return sizes // the decoder refuses it
				}
				levels = append(levels, level{isList: c == '['})
			}
			if c == '"' {
				for i++; i < len(text) && text[i] != '"'; i++ {
					if text[i] == '\\' {
						i++
					}
				}
			}
		}
	}
	return sizes
}

// checkListWork returns an error if a patch takes too long.
func checkListWork(steps, items, limit int) error {
	if items > 0 && steps > limit/items {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the patch has %d operations or items, for "+
			"lists of up to %d items; the product is at most %d: "+
			"use server-side apply, or a JSON merge patch", steps, items,
			limit))
	}
	return nil
}
