package kinds

// valueOrZero returns *p, or the zero value if p is nil.
func valueOrZero[T any](p *T) T {
	var zero T
	if p == nil {
		return zero
	}
	return *p
}

// setDefault sets *p to a pointer to v if it is nil.
func setDefault[T any](p **T, v T) {
	if *p == nil {
		*p = &v
	}
}

// setEmpty sets *p to v if it is the zero value.
func setEmpty[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}
