package write

import (
	"strings"
	"testing"
	"time"
)

// Merge patches satisfy the examples of RFC 7396, appendix A.
func TestMergePatchesFollowRFC7396(t *testing.T) {
	for _, c := range []struct{ document, patch, want string }{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`["a","b"]`, `["c","d"]`, `["c","d"]`},
		{`{"a":"b"}`, `["c"]`, `["c"]`},
		{`{"e":null}`, `{"a":1}`, `{"a":1,"e":null}`},
		{`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		{`{"a":9007199254740993}`, `{"b":0.5}`, `{"a":9007199254740993,"b":0.5}`},
	} {
		if got, err := mergePatch([]byte(c.document), []byte(c.patch)); err != nil || string(got) != c.want {
			t.Errorf("%s with %s: %s (%v), want %s", c.document, c.patch, got, err, c.want)
		}
	}
	for _, none := range []string{`null`, `1`, `"a"`, `{`} {
		if got, err := mergePatch([]byte(`{"a":"foo"}`), []byte(none)); err == nil ||
			err.Error() != "Invalid JSON Patch" {
			t.Errorf("%s is taken for a patch, which makes %s (%v)", none, got, err)
		}
	}
	start := time.Now()
	deep := strings.Repeat(`{"a":`, 9000) + "1" + strings.Repeat("}", 9000)
	if _, err := mergePatch([]byte(`{}`), []byte(deep)); err != nil || time.Since(start) > 5*time.Second {
		t.Errorf("a deep patch takes %s (%v)", time.Since(start), err)
	}
}
