package body

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// A short YAML document that expands to a large one uses no more memory than a body may have. Any user may send such a
// document.
// Proves S12.
func TestExpandedYAMLIsLimited(t *testing.T) {
	long := strings.Repeat("a", 100_000)
	laughs := `l0: &l0 "` + long + `"` + "\n"
	for i := range 5 {
		laughs += fmt.Sprintf("l%d: &l%d [%s]\n", i+1, i+1,
			strings.Join(strings.Split(strings.Repeat(fmt.Sprintf("*l%d ", i), 8), " ")[:8], ", "))
	}
	for name, text := range map[string]string{
		"a text":  `x: &a "` + long + `"` + "\ny: [" + strings.TrimSuffix(strings.Repeat("*a,", 900), ",") + "]",
		"bytes":   `x: &a !!binary "` + long + `"` + "\ny: [" + strings.TrimSuffix(strings.Repeat("*a,", 900), ",") + "]",
		"a key":   `x: &a "` + long + `"` + "\ny: [" + strings.TrimSuffix(strings.Repeat("{*a : 1},", 900), ",") + "]",
		"a merge": `x: &a {k: "` + long + `"}` + "\ny: [" + strings.TrimSuffix(strings.Repeat("{<<: *a},", 900), ",") + "]",
		"nested":  laughs,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := FromYAML([]byte(text))
		runtime.ReadMemStats(&after)
		if !apierrors.IsRequestEntityTooLargeError(err) {
			t.Errorf("%s: %.200v", name, err)
		}
		if spent := after.TotalAlloc - before.TotalAlloc; spent > 16<<20 {
			t.Errorf("%s: %d bytes took %d MiB", name, len(text), spent>>20)
		}
	}
	for text, want := range map[string]string{
		"a: &x {b: 1}\nc: *x\nd: {<<: *x, e: 2}": `{"a":{"b":1},"c":{"b":1},"d":{"b":1,"e":2}}`,
		"command: 'a &x; b *y'":                  `{"command":"a \u0026x; b *y"}`,
	} {
		if data, doubts, err := FromYAML([]byte(text)); string(data) != want || err != nil || len(doubts) > 0 {
			t.Errorf("%s: %s %v %v", text, data, doubts, err)
		}
	}
	if _, _, err := FromYAML([]byte("a: &x [*x]")); err == nil {
		t.Error("what contains itself was read")
	}
}
