package arch

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	rowOfTable    = regexp.MustCompile(`^\| ([SP]\d\d) \| (.*?)( \(not built\))? \|$`)
	provesPattern = regexp.MustCompile(`^(?://|#) Proves ([SP]\d\d(?:, [SP]\d\d)*)\.$`)
	testFunc      = regexp.MustCompile(`^func ((?:Test|Benchmark|Fuzz)\w+)\(`)
)

// TestEveryRowHasATest prints the tests of each row of docs/mission.md.
func TestEveryRowHasATest(t *testing.T) {
	proofs := map[string][]string{}
	for _, path := range testFiles(t) {
		for row, names := range proofsOf(t, path) {
			proofs[row] = append(proofs[row], names...)
		}
	}
	text, err := os.ReadFile("../../../docs/mission.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		found := rowOfTable.FindStringSubmatch(strings.TrimSpace(line))
		if found == nil {
			continue
		}
		row, about, missing := found[1], found[2], found[3] != ""
		rows[row] = true
		t.Logf("%s %s\n\t%s", row, about, strings.Join(proofs[row], "\n\t"))
		switch {
		case missing && len(proofs[row]) > 0:
			t.Errorf("%s has tests: docs/mission.md says that it is not built", row)
		case !missing && len(proofs[row]) == 0:
			t.Errorf("%s has no test: %s", row, about)
		}
	}
	if len(rows) != 44 {
		t.Errorf("docs/mission.md has %d rows, want S01 to S37 and P01 to P07", len(rows))
	}
	for row, names := range proofs {
		if !rows[row] {
			t.Errorf("%s is no row of docs/mission.md: %v", row, names)
		}
	}
}

// TestTestNamesContainNoRowCodes refuses names such as TestPodsStartS23: rows belong into a line of the comment.
func TestTestNamesContainNoRowCodes(t *testing.T) {
	withRow := regexp.MustCompile(`^func ((?:Test|Benchmark|Fuzz)\w*[a-z][SP]\d\d)\(`)
	for _, path := range testFiles(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if found := withRow.FindStringSubmatch(line); found != nil {
				t.Errorf("%s: %s: put the row into a line such as // Proves S12.", path, found[1])
			}
		}
	}
}

// testFiles returns the Go tests and the scripts of the repository.
func testFiles(t *testing.T) (paths []string) {
	t.Helper()
	for _, folder := range []string{"certs", "cmd", "daemons", "hcl", "kube", "provision", "tests"} {
		err := filepath.WalkDir(filepath.Join("../../..", folder), func(path string, d os.DirEntry, err error) error {
			script := strings.HasSuffix(path, ".txt") && strings.Contains(path, "/testdata/")
			if err == nil && !d.IsDir() && (script || strings.HasSuffix(path, "_test.go")) {
				paths = append(paths, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

// proofsOf returns the names of the tests in a file by the rows that they prove. A script is named by its path.
func proofsOf(t *testing.T, path string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	folder := strings.TrimPrefix(filepath.Dir(path), "../../../")
	proofs := map[string][]string{}
	var pending []string
	add := func(name string) {
		for _, row := range pending {
			if name := folder + " " + name; !slices.Contains(proofs[row], name) {
				proofs[row] = append(proofs[row], name)
			}
		}
		pending = nil
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if found := provesPattern.FindStringSubmatch(line); found != nil {
			pending = append(pending, strings.Split(found[1], ", ")...)
			if strings.HasPrefix(line, "#") {
				add(filepath.Base(path))
			}
		} else if found := testFunc.FindStringSubmatch(line); found != nil {
			add(found[1])
		} else if !strings.HasPrefix(line, "//") && len(pending) > 0 {
			t.Errorf("%s: a line that says which rows are proved belongs above a test", path)
			pending = nil
		}
	}
	if err := lines.Err(); err != nil {
		t.Errorf("%s: %v", path, err)
	}
	return proofs
}
