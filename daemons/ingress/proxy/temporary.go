package proxy

import (
	"errors"
	"syscall"
)

// temporary reports whether a listener that failed to accept a connection may well accept the next.
func temporary(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
