package support

import (
	"encoding/json"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// A sensitive value of the configuration is hidden in every encoding of the text around it.
func TestSecretValuesAreHiddenInAllEncodings(t *testing.T) {
	long := "user = admin\n\tpass = \"swordfish\"\n{\nlast <line>\n"
	phrase := strings.Repeat("correct horse battery staple ", 6) + "it's"
	redactor := NewRedactor([]string{long, phrase, "hunter2hunter2", "4711x", "80", "true"})
	object := map[string]any{
		"spec": map[string]any{
			"a": "before\n" + long + "after",
			"b": phrase,
			"c": "hunter2hunter2",
			"d": "4711x",
			"e": 80,
			"f": true,
		},
	}
	asYAML, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	inJSON, err := json.Marshal(string(asJSON))
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{"YAML": string(asYAML), "JSON": string(asJSON),
		"JSON in JSON": string(inJSON), "plain": long + phrase + " hunter2hunter2 4711x"} {
		got := redactor.Hide(text)
		for _, secret := range []string{"admin", "swordfish", "last", "horse", "staple", "hunter2", "4711x", "80"} {
			if strings.Contains(got, secret) {
				t.Errorf("%s shows %q:\n%s", what, secret, got)
			}
		}
		if strings.Contains(text, "true") && !strings.Contains(got, "true") {
			t.Errorf("%s: a switch is hidden:\n%s", what, got)
		}
	}
}

// A short value is hidden only if it stands alone, and not as a part of words, numbers and paths.
func TestShortValuesAreHiddenOnlyAsWholeWords(t *testing.T) {
	redactor := NewRedactor([]string{"4711x", "web"})
	for text, want := range map[string]string{
		"pin: 4711x":                "pin: (hidden)",
		`{"pin":"4711x","n":1}`:     `{"pin":"(hidden)","n":1}`,
		`"{\"pin\":\"4711x\"}"`:     `"{\"pin\":\"(hidden)\"}"`,
		`"a\n4711x\nb"`:             `"a\n(hidden)\nb"`,
		"run --pin 4711x 4711x":     "run --pin (hidden) (hidden)",
		"PIN=4711x":                 "PIN=(hidden)",
		"x://4711x:4711x@host":      "x://(hidden):(hidden)@host",
		"it is 4711x.":              "it is (hidden).",
		"4711x":                     "(hidden)",
		"webhook web-0 /web web.io": "webhook web-0 /web web.io",
		"a4711x 4711xy é4711x":      "a4711x 4711xy é4711x",
	} {
		if got := redactor.Hide(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func TestValuesThatContainOthersAreHiddenCompletely(t *testing.T) {
	if got := NewRedactor([]string{"swordfish", "swordfish-2000"}).Hide("swordfish-2000"); got != hiddenText {
		t.Error(got)
	}
}
