package controllers

import (
	"slices"
	"testing"

	"clusterctl/daemons/config"
)

// The configuration package checks names without access to the controllers.
func TestControllerNamesMatchTheConfiguration(t *testing.T) {
	var names []string
	for _, entry := range all {
		names = append(names, entry.name)
	}
	if !slices.Equal(names, config.Controllers) {
		t.Errorf("controllers are %q, daemons/config/controllers.go has %q", names, config.Controllers)
	}
}
