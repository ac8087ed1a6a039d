package kinds

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// warningList collects warnings about one object.
type warningList []string

func (d *warningList) addf(at *field.Path, format string, args ...any) {
	if !d.isFull() {
		d.add(at.String() + ": " + fmt.Sprintf(format, args...))
	}
}

func (d *warningList) isFull() bool { return len(*d) >= maxWarnings }

func (d *warningList) add(texts ...string) {
	*d = append(*d, texts[:min(len(texts), maxWarnings-len(*d))]...)
}

// Limits of the warnings. A client chooses the number of ports and files of an object, and each may be compared with
// all others.
const (
	maxWarnings    = 256 // more than a response can hold
	maxComparisons = 128 // earlier ports, or files of a volume, with which each one is compared
)
