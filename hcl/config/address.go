package config

import (
	"regexp"
	"strings"
)

// modulePath is an address of a module, or of one of its instances.
var modulePath = regexp.MustCompile(`^(module\.[^.\[]+(\[[^\]]*\])?\.)*module\.[^.\[]+(\[[^\]]*\])?$`)

// Covers says whether a selection names an address: machine.node names all of its instances, and module.shop
// everything that is in it.
func Covers(selection, address string) bool {
	rest, ok := strings.CutPrefix(address, selection)
	if !ok {
		return false
	}
	return rest == "" || rest[0] == '[' || rest[0] == '.' && modulePath.MatchString(selection)
}

// Moved says that what was applied under one address is declared under another.
type Moved struct {
	From, To string
	Source   Source
}

// Import says that an object that is there already, of somebody else's making, is taken over by what is declared.
type Import struct {
	To     string
	Source Source
}

// Removed says what becomes of what is declared no more: it is taken away, or left as it is and forgotten.
type Removed struct {
	From    string
	Destroy bool
	Source  Source
}
