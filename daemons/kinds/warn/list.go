// Package warn collects warnings about valid parts of objects that are probably not intended.
package warn

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// List collects warnings about one object.
type List []string

func (d *List) Addf(at *field.Path, format string, args ...any) {
	if !d.IsFull() {
		d.Add(at.String() + ": " + fmt.Sprintf(format, args...))
	}
}

func (d *List) IsFull() bool { return len(*d) >= maxWarnings }

func (d *List) Add(texts ...string) {
	*d = append(*d, texts[:min(len(texts), maxWarnings-len(*d))]...)
}

// Limits of the warnings. A client chooses the number of ports and files of an object, and each may be compared with
// all others.
const (
	maxWarnings    = 256 // more than a response can hold
	MaxComparisons = 128 // earlier ports, or files of a volume, with which each one is compared
)
