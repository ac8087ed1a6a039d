package header

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

func fields(lines ...string) http.Header {
	h := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		h.Add(name, value)
	}
	return h
}

func TestElementsOfALine(t *testing.T) {
	h := fields("Upgrade: a, b,,\tc ", "Upgrade: ", "Upgrade: d")
	if got := slices.Collect(Elements(h, "Upgrade")); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Errorf("elements: %q", got)
	}
	for element, want := range map[string]bool{"a": true, "D": true, "e": false, "": false} {
		if Has(h, "upgrade", element) != want {
			t.Errorf("has %q: %t", element, !want)
		}
	}
	if got := Joined(h, "Upgrade"); got != "a, b,,\tc ,,d" {
		t.Errorf("joined: %q", got)
	}
	if got := Joined(h, "Other"); got != "" {
		t.Errorf("joined: %q", got)
	}
}

func TestElementsWithWeightZeroAreRefused(t *testing.T) {
	for list, want := range map[string]bool{
		"": false, "gzip": true, "GZIP": true, "br, gzip;q=0.1": true, "gzip;q=0": false, "gzip; q=0.000": false,
		"br": false,
		"*":  true, "*;q=0": false, "*;q=0, gzip": true, "*, gzip;q=0": false, "gzip;q=x": true, "gzip;Q=0": false,
		"xgzip": false,
	} {
		if Accepts(list, "gzip") != want {
			t.Errorf("%q accepts gzip: %t", list, !want)
		}
	}
}

func TestUnchangedMatchesOneOfSeveralTags(t *testing.T) {
	for value, want := range map[string]bool{
		"": false, `"a"`: true, `"b"`: false, `"b", "a"`: true, `W/"a"`: true, "*": true, `"b",W/"a"`: true, "a": false,
	} {
		r := &http.Request{Header: fields("If-None-Match: " + value)}
		if IsUnchanged(r, `"a"`) != want {
			t.Errorf("%s: %t", value, !want)
		}
	}
}

func TestHTTP2UpgradesAreRemoved(t *testing.T) {
	for name, c := range map[string]struct {
		lines               []string
		upgrade, connection string
	}{
		"none": {[]string{"Connection: keep-alive"}, "", "keep-alive"},
		"websocket": {[]string{"Connection: keep-alive, Upgrade", "Upgrade: websocket"}, "websocket",
			"keep-alive, Upgrade"},
		"h2c": {[]string{"Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: x"},
			"", ""},
		"h2c in capitals":      {[]string{"Connection: Upgrade", "Upgrade: H2C"}, "", ""},
		"h2c with a version":   {[]string{"Connection: Upgrade", "Upgrade: h2c/2"}, "", ""},
		"beside another":       {[]string{"Connection: Upgrade", "Upgrade: h2c, x"}, "x", "Upgrade"},
		"behind another":       {[]string{"Connection: Upgrade", "Upgrade: x , h2c"}, "x", "Upgrade"},
		"in a line of its own": {[]string{"Connection: Upgrade", "Upgrade: x", "Upgrade: h2c"}, "x", "Upgrade"},
	} {
		h := fields(c.lines...)
		RemoveHTTP2Upgrade(h)
		if got := Joined(h, "Upgrade"); got != c.upgrade || h.Get("Connection") != c.connection ||
			h.Get("Http2-Settings") != "" {
			t.Errorf("%s: %v", name, h)
		}
	}
}
