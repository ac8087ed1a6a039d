package network

import (
	"strings"
	"testing"
)

func TestServiceNamesMayBeginWithADigit(t *testing.T) {
	for name, ok := range map[string]bool{"web": true, "9web": true, "1-2-3-4": true, "-web": false, "web.a": false,
		"Web": false, strings.Repeat("9", 63): true, strings.Repeat("9", 64): false} {
		if errs := Services().NameErrors(name, false); (len(errs) == 0) != ok {
			t.Errorf("%s: %v", name, errs)
		}
	}
	if errs := Services().NameErrors("9web-", true); len(errs) > 0 {
		t.Errorf("a prefix of a name: %v", errs)
	}
}
