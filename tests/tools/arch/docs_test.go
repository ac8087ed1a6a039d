package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// pathPattern matches text that looks like a file or folder of this repository.
	pathPattern = regexp.MustCompile(
		"`((?:cmd|hcl|provision|certs|daemons|examples|tests|docs|editors)/[A-Za-z0-9_./-]*)`")
	// functionPattern matches "`Name` in `path.go`", and "`One` and `Other` in `path.go`".
	functionPattern = regexp.MustCompile("(?:`([A-Za-z]+)` and )?`([A-Za-z]+)` in `([a-z0-9_/]+\\.go)`")
	linkPattern     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headingPattern  = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	// metricPattern matches names with a suffix that Prometheus' conventions give to metrics.
	metricPattern = regexp.MustCompile(
		"`([a-z]+(?:_[a-z0-9]+)+_(?:total|seconds|bytes|requests|count|ratio))(?:\\{[^`]*)?`")
)

// documentTexts returns all documentation texts by their paths.
func documentTexts(t *testing.T) map[string]string {
	t.Helper()
	names := []string{"README.md", "ARCHITECTURE.md", "HACKING.md"}
	err := filepath.WalkDir("../../../docs", func(path string, e fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".md") {
			names = append(names, strings.TrimPrefix(path, "../../../"))
		}
		return err
	})
	if err != nil || len(names) < 20 {
		t.Fatalf("%d documents, %v", len(names), err)
	}
	texts := map[string]string{}
	for _, name := range names {
		text, err := os.ReadFile("../../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = string(text)
	}
	return texts
}

func TestDocumentsNameFilesThatExist(t *testing.T) {
	for doc, text := range documentTexts(t) {
		found := pathPattern.FindAllStringSubmatch(text, -1)
		if doc == "ARCHITECTURE.md" && len(found) < 30 {
			t.Errorf("%s names %d files; it should describe both main flows by file names", doc, len(found))
		}
		for _, m := range found {
			if strings.Contains(m[1], "NAME") {
				continue // a pattern for a file to add
			}
			if _, err := os.Stat("../../../" + m[1]); err != nil {
				t.Errorf("%s names %s, which is not there", doc, m[1])
			}
		}
	}
}

func TestDocumentsNameFunctionsThatExist(t *testing.T) {
	found := 0
	for doc, text := range documentTexts(t) {
		for _, m := range functionPattern.FindAllStringSubmatch(text, -1) {
			source, _ := os.ReadFile("../../../" + m[3]) // another test reports missing files
			for _, name := range m[1:3] {
				if name == "" {
					continue
				}
				found++
				if !regexp.MustCompile(`(?m)^(?:func (?:\([^)]*\) )?|var |type |const |\t)` + name + `\b`).
					Match(source) {
					t.Errorf("%s: %s does not declare %s", doc, m[3], name)
				}
			}
		}
	}
	if found < 20 {
		t.Errorf("%d functions are named; ARCHITECTURE.md has tables of them", found)
	}
}

func TestLinksInDocumentsResolve(t *testing.T) {
	texts := documentTexts(t)
	for doc, text := range texts {
		for _, m := range linkPattern.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := doc
			if file != "" {
				target = filepath.Join(filepath.Dir(doc), file)
			}
			if _, err := os.Stat("../../../" + target); err != nil {
				t.Errorf("%s links to %s, which is not there", doc, target)
				continue
			}
			if anchor != "" && !headingAnchors(texts[target])[anchor] {
				t.Errorf("%s links to %s, which has no heading for #%s", doc, target, anchor)
			}
		}
	}
}

// headingAnchors returns the names with which GitHub links to headings.
func headingAnchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, m := range headingPattern.FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all[strings.ReplaceAll(strings.TrimSpace(name), " ", "-")] = true
	}
	return all
}

// A metric's name may consist of a namespace, a subsystem and a name. Then the code contains these parts.
func TestMetricsInDocumentsAreTheDaemons(t *testing.T) {
	var code strings.Builder
	err := filepath.WalkDir("../../../daemons", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		code.Write(source)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for doc, text := range documentTexts(t) {
		if strings.HasPrefix(doc, "docs/benchmarks") {
			continue // benchmarks also contain metrics of other programs
		}
		for _, m := range metricPattern.FindAllStringSubmatch(text, -1) {
			found++
			if !strings.Contains(code.String(), m[1]) {
				t.Errorf("%s names the metric %s, which no daemon has", doc, m[1])
			}
		}
	}
	if found < 10 {
		t.Errorf("%d metrics are named", found)
	}
}
