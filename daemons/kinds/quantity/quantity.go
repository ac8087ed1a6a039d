// Package quantity recognizes quantities that take long to parse, in texts and in encoded objects. The library expands
// a quantity to all of its digits: the ten bytes 1e-9999999 take seconds, and 1e-999999999 takes minutes and gigabytes.
package quantity

import (
	"errors"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// The limits of a quantity.
const (
	maxLength   = 128 // bytes
	maxExponent = 999
)

// Err is the error of a quantity that is not parsed.
var Err = errors.New("quantities must have at most 128 characters, and an exponent between -999 and 999")

// IsHuge reports whether parsing a text as a quantity takes long.
func IsHuge(text string) bool {
	rest := strings.TrimLeft(strings.TrimLeft(text, "+-"), "0123456789.")
	digits := len(text) - len(rest)
	switch {
	case digits > maxLength:
		return true
	case digits == 0 || rest == "" || rest[0]|0x20 != 'e':
		return false // without digits or with another suffix, the library looks at the text once
	}
	exponent, err := strconv.Atoi(rest[1:])
	return errors.Is(err, strconv.ErrRange) || err == nil && (exponent > maxExponent || exponent < -maxExponent)
}

// Parse parses a text that a client chose. It returns Err if that would take long.
func Parse(text string) (resource.Quantity, error) {
	if IsHuge(text) {
		return resource.Quantity{}, Err
	}
	return resource.ParseQuantity(text)
}
