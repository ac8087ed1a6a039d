package load_test

import (
	"os"
	"strings"
	"testing"

	"clusterctl/hcl/load"
	"clusterctl/tests/tools/document"
)

const referencePath = "../../docs/language.md"

// The reference describes every block, attribute and function as the code defines it.
// Proves P01.
func TestTheReferenceIsUpToDate(t *testing.T) {
	text := load.Reference()
	if strings.Contains(text, "{{") {
		t.Error("a placeholder of reference.md is not replaced")
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "| `") && strings.HasSuffix(line, "|  |\n") ||
			strings.HasPrefix(line, "- **`") && strings.HasSuffix(line, ". \n") {
			t.Errorf("the reference does not describe %s", strings.TrimSpace(line))
		}
	}
	text = document.Format(text)
	if *update {
		if err := os.WriteFile(referencePath, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(referencePath)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != text {
		t.Error("docs/language.md is not what the code says: go test ./hcl/load -update rewrites it")
	}
}
