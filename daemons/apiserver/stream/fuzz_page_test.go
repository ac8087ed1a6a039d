package stream

import (
	"io"
	"strings"
	"testing"
)

// FuzzPage rewrites pages of arbitrary bytes. A page without links to rewrite must stay identical.
func FuzzPage(f *testing.F) {
	f.Add(`<!DOCTYPE html><a href="/x" href='y'>&lt;<img src=/z/><script><!-- </script> --></script><p`)
	f.Add("<textarea><a href=\"/\x00\"></textarea><plaintext></plaintext><a href=")
	f.Add("<base href=\"http://10.0.0.1:80\"><svg><![CDATA[<a href=/x>]]></svg><?php ?><!--")
	f.Fuzz(func(t *testing.T, text string) {
		same := pageResponse("text/html", text)
		rewritePage(same, func(link string) string { return link })
		if got, err := io.ReadAll(same.Body); string(got) != text || err != nil {
			t.Errorf("%q became %q, %v", text, got, err)
		}
		r := pageResponse("text/html", text)
		rewritePage(r, addPrefix)
		got, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
		again := pageResponse("text/html", string(got))
		rewritePage(again, addPrefix)
		if twice, err := io.ReadAll(again.Body); err != nil ||
			strings.Count(string(twice), "/proxy/api/v1/namespaces/a/pods/p/proxy") > strings.Count(string(got),
				"/proxy/api/v1/namespaces/a/pods/p/proxy") {
			t.Errorf("%q became %q and then %q, %v", text, got, twice, err)
		}
	})
}
