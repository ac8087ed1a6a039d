package server

import (
	"net/url"
	"testing"
)

func TestBoolParametersAreParsedLikeTheAPIServers(t *testing.T) {
	for text, want := range map[string]bool{"": false, "a=": true, "a": true, "a=1": true, "a=t": true, "a=T": true,
		"a=True": true, "a=TRUE": true, "a=true": true,
		"a=yes": true, "a=0": false, "a=false": false, "a=False": false, "a=FALSE": false, "a=0&a=1": false,
		"b=1": true, "a=0&b=True": true} {
		q, err := url.ParseQuery(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := isSet(q, "a", "b"); got != want {
			t.Errorf("%q is %v", text, got)
		}
	}
}
