package scan

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestValuesAreSkippedCompletely(t *testing.T) {
	for _, text := range []string{`{}`, `[]`, `{"a":[1,{"b":"}\"]"}],"c":null}`, `[[],[{}],-1.5e3,true]`, `"\\"`, `"x"`} {
		for _, end := range []string{",", "}", "]"} {
			s := Scanner{Data: []byte(text + end)}
			if !s.Value() || s.Pos != len(text) {
				t.Errorf("%s: walked over %q", text, s.Data[:s.Pos])
			}
		}
	}
	for _, text := range []string{"", `{`, `[1`, `"`, `"\`, `,`, `}`, `{"a" :1}`, `x`} {
		if s := (Scanner{Data: []byte(text)}); s.Value() {
			t.Errorf("%q passed", text)
		}
	}
}

func FuzzValue(f *testing.F) {
	f.Add(`{"a":[1,{"b":"}\"]"}],"c":null}`)
	f.Fuzz(func(t *testing.T, text string) {
		s := Scanner{Data: []byte(text)}
		if s.Value() && s.Pos > len(text) {
			t.Fatalf("walked over the end of %q", text)
		}
		compact, err := json.Marshal(json.RawMessage(text))
		if err != nil || !strings.HasPrefix(string(compact), "{") && !strings.HasPrefix(string(compact), "[") {
			return
		}
		s = Scanner{Data: compact}
		if !s.Value() || s.Pos != len(compact) {
			t.Fatalf("did not walk over %s", compact)
		}
	})
}
