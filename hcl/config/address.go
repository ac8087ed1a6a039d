package config

import (
	"regexp"
	"strings"
)

// modulePath matches an address of a module, or of one of its instances.
var modulePath = regexp.MustCompile(`^(module\.[^.\[]+(\[[^\]]*\])?\.)*module\.[^.\[]+(\[[^\]]*\])?$`)

// Includes reports whether a selection includes an address: machine.node includes all its instances, and module.shop
// includes everything in the module.
func Includes(selection, address string) bool {
	rest, ok := strings.CutPrefix(address, selection)
	if !ok {
		return false
	}
	return rest == "" || rest[0] == '[' || rest[0] == '.' && modulePath.MatchString(selection)
}

// Moved declares that what was applied under one address is now declared under another.
type Moved struct {
	From, To string
	Source   Source
}

// Import declares that an existing object, created by someone else, is taken over by a declared one.
type Import struct {
	To     string
	Source Source
}

// Removed declares what happens to something that is no longer declared: it is deleted, or it stays unchanged and is no
// longer managed.
type Removed struct {
	From    string
	Destroy bool
	Source  Source
}
