package local

import (
	"maps"
	"testing"
)

func TestSystemdProxiesAreReportedWithoutPasswords(t *testing.T) {
	for text, want := range map[string]map[string]string{
		"LANG=C.UTF-8\nPATH=/usr/bin\n": nil,
		"HTTPS_PROXY=http://proxy:3128\nhttp_proxy=http://proxy:3128": {"HTTPS_PROXY": "http://proxy:3128",
			"http_proxy": "http://proxy:3128"},
		"HTTPS_PROXY=$'http://me:se cret@proxy:3128'\nNO_PROXY=a,b\n": {"HTTPS_PROXY": "http://proxy:3128",
			"NO_PROXY": "a,b"},
		"HTTPS_PROXY=me:100%@proxy:3128\nNO_PROXY=a\n": {"HTTPS_PROXY": "proxy:3128", "NO_PROXY": "a"},
		"https_proxy=http://me:secret@proxy:3128\n":    {"https_proxy": "http://proxy:3128"},
		"no_proxy=$'a\\'b'\nHTTP_PROXY=\n":             {"no_proxy": "a'b"},
	} {
		if got := parseProxies(text); !maps.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
