package arch

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// paths are what looks like a file or folder of this repository in a text.
var paths = regexp.MustCompile("`((?:cmd|hcl|provision|certs|daemons|examples|tests|docs)/[A-Za-z0-9_./-]*)`")

func TestDocumentsNameFilesThatExist(t *testing.T) {
	for _, doc := range []string{"README.md", "ARCHITECTURE.md", "HACKING.md", "docs/networking.md"} {
		text, err := os.ReadFile("../../" + doc)
		if err != nil {
			t.Error(err)
			continue
		}
		found := paths.FindAllStringSubmatch(string(text), -1)
		if doc == "ARCHITECTURE.md" && len(found) < 30 {
			t.Errorf("%s names %d files; it should walk both rivers by file name", doc, len(found))
		}
		for _, m := range found {
			if strings.Contains(m[1], "NAME") {
				continue // a pattern for a file to add
			}
			if _, err := os.Stat("../../" + m[1]); err != nil {
				t.Errorf("%s names %s, which is not there", doc, m[1])
			}
		}
	}
}
