package controllers

import (
	"slices"
	"testing"

	"clusterctl/daemons/config"
)

// A configuration is checked by names, where the controllers themselves are not known.
func TestTheNamesOfControllersAreThoseOfTheConfiguration(t *testing.T) {
	var names []string
	for _, entry := range all {
		names = append(names, entry.name)
	}
	if !slices.Equal(names, config.Controllers) {
		t.Errorf("controllers are %q, daemons/config/controllers.go has %q", names, config.Controllers)
	}
}
