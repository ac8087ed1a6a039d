package quantity

import (
	"errors"
	"strings"
	"testing"
)

func TestHugeQuantitiesAreRecognized(t *testing.T) {
	for text, want := range map[string]bool{
		"1e-999999999": true, "1E-999999999": true, "-1e1000": true, "+.1e+1000": true, "1e99999999999999999999": true,
		strings.Repeat("9", 129): true, "0." + strings.Repeat("3", 200): true,
		"": false, "1": false, "100m": false, "1Gi": false, "1E": false, "1Ei": false, "1e3": false, "-1.5e-999": false,
		"e-999999999": false, "a1e-999999999": false, "1e-99999x": false, strings.Repeat("x", 1000): false,
		"0.3333333333333333": false,
	} {
		if got := IsHuge(text); got != want {
			t.Errorf("%.40q: %v", text, got)
		}
	}
}

func TestParseRefusesHugeQuantities(t *testing.T) {
	if _, err := Parse("1e-999999999"); !errors.Is(err, Err) {
		t.Errorf("%v", err)
	}
	if q, err := Parse("2Mi"); err != nil || q.Value() != 2<<20 {
		t.Errorf("%v %v", q, err)
	}
}
