//go:build !libraries

package libraries

// Selected reports whether the program uses the libraries.
const Selected = false
