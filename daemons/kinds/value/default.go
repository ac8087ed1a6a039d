// Package value compares values of API objects and sets their defaults.
package value

// OrZero returns *p, or the zero value if p is nil.
func OrZero[T any](p *T) T {
	var zero T
	if p == nil {
		return zero
	}
	return *p
}

// SetDefault sets *p to a pointer to v if it is nil.
func SetDefault[T any](p **T, v T) {
	if *p == nil {
		*p = &v
	}
}

// SetEmpty sets *p to v if it is the zero value.
func SetEmpty[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}
