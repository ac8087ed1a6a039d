package jsonpatch

import (
	"strings"
	"testing"
)

// A patch that is invalid, or whose result would be too large, is an error and does not panic.
// Proves S11.
func TestInvalidAndLargePatchesAreErrors(t *testing.T) {
	copies := `{"op":"add","path":"/b","value":""}` + strings.Repeat(`,{"op":"copy","from":"/a","path":"/b"}`, 40)
	for patch, want := range map[string]string{
		`{"op":"test","path":""}`:              "the operation has no value",
		`{"op":"test","path":"","value":null}`: "test failed",
		`{"op":"test","path":"","value":{"a":"X"}},{"op":"add","path":"/c","value":1}`: "",
		`{"op":"test","path":"/a"}`: "failed",
		`{"op":"add","path":"/c"}`:  "",
		`{"op":"none","path":"/c"}`: "Unexpected kind",
		copies:                      "exceeding the limit",
	} {
		text := strings.Repeat("x", 100_000)
		operations, err := Decode([]byte("[" + strings.ReplaceAll(patch, "X", text) + "]"))
		if err != nil {
			t.Errorf("%.60s: %v", patch, err)
			continue
		}
		if _, err = Apply(operations, []byte(`{"a":"`+text+`"}`)); (err == nil) != (want == "") ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %.200v, want %q", patch, err, want)
		}
	}
}
