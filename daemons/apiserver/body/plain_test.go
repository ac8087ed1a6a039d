package body

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestPlainJSONIsNotConverted(t *testing.T) {
	var names []string
	for i := range 3 * manyNames {
		names = append(names, fmt.Sprintf(`"k%d":%d`, i, i))
	}
	many := strings.Join(names, ",")
	for text, want := range map[string]bool{
		`{}`: true, `{}` + "\n": true,
		`{"a":[1,-20,"x: y # \"z\\\n\t",true,false,null,[],{}],"b":{"c":0}}`: true,
		`{` + many + `}`: true,

		``: false, `[]`: false, `"a"`: false, `1`: false, `{`: false, `{"a"}`: false, `{"a":}`: false, `{"a":1`: false,
		`{"a":1}}`: false, `{"a":1,}`: false, `{"a":[1,]}`: false, `{a: 1}`: false, `{"a":tru}`: false,
		`{"a":1,"a":2}`:             false, // duplicates are doubts
		`{` + many + `,"k3":1}`:     false,
		`{"a": 1}`:                  false,
		`{"a":1.0}`:                 false, // 1 in YAML
		`{"a":1e3}`:                 false,
		`{"a":01}`:                  false,
		`{"a":-0}`:                  false,
		`{"a":1234567890123456789}`: false,
		`{"a":"\u0041"}`:            false,
		`{"a":"` + "\x7f" + `"}`:    false,
		`{"a":"` + "\t" + `"}`:      false,
		`{"a":"ä"}`:                 false,
		`{"<<":{"a":1}}`:            false, // merges in YAML
		`{"` + strings.Repeat("a", 1025) + `":1}`:                     false, // too long in YAML
		strings.Repeat(`{"a":`, 100) + `1` + strings.Repeat(`}`, 100): false,
	} {
		if got := isPlainJSON([]byte(text)); got != want {
			t.Errorf("isPlainJSON(%.80q) = %v", text, got)
		}
	}
}

// FuzzPlainJSON checks that plain JSON means the same as YAML, also in strict decoding.
func FuzzPlainJSON(f *testing.F) {
	for _, text := range []string{
		`{"a":[1,-20,"x: y # \"z\\\n\t",true,false,null,[],{}],"b":{"c":0}}`, `{"y":"on","~":"0x1","1":"2001-01-01"}`,
		`{"? ":"- ","*a":"&b","!c":"!!binary d"}`, `{"a":" x  y ","b":"","c":"'"}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !isPlainJSON([]byte(text)) {
			return
		}
		converted, err := yaml.YAMLToJSONStrict([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		var got, want any
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if err := json.Unmarshal(converted, &want); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s means %s as YAML, %v", text, converted, err)
		}
	})
}
