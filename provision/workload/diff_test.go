package workload

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestChangesOfLongValuesShowWhereTheyDiffer(t *testing.T) {
	object := func(value any) *unstructured.Unstructured {
		return &unstructured.Unstructured{
			Object: map[string]any{"kind": "ConfigMap", "data": map[string]any{"k": value}},
		}
	}
	same, rest := strings.Repeat("a", 200), strings.Repeat("z", 200)
	around := "…" + same[:shownBefore]
	for name, c := range map[string]struct {
		old, new any
		want     string
	}{
		"short":      {"old", "new", `"old" → "new"`},
		"at the end": {same + "1", same + "2", around + `1" → ` + around + `2"`},
		"in the middle": {same + "1" + rest, same + "2" + rest, around + "1" + rest[:79] + "… → " + around +
			"2" + rest[:79] + "…"},
		"longer":       {same, same + "2", around + `" → ` + around + `2"`},
		"from nothing": {nil, same, `(none) → "` + same[:119] + "…"},
		"at a letter of many bytes": {same + "ä" + rest, same + "ö" + rest, around[:len(around)-1] + "ä" + rest[:79] +
			"… → " + around[:len(around)-1] + "ö" + rest[:79] + "…"},
	} {
		if got, want := Diff(object(c.old), object(c.new)), []string{"data.k: " + c.want}; !slices.Equal(got, want) {
			t.Errorf("%s:\n%q, want\n%q", name, got, want)
		}
	}
}
