package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	registry "github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/spf13/cobra"
)

// documentTexts returns the texts of the documents whose commands users copy literally.
func documentTexts(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("../../docs/operations/*.md")
	if err != nil || len(paths) == 0 {
		t.Fatalf("pages of docs/operations: %d, %v", len(paths), err)
	}
	texts := map[string]string{}
	for _, path := range append(paths, "../../docs/operations.md", "../../docs/quickstart.md",
		"../../docs/networking.md", "../../docs/scheduling.md", "../../docs/gitops.md", "../../docs/why.md",
		"../../docs/dashboard.md", "../../docs/convert.md",
		"../../README.md",
		"../../ARCHITECTURE.md",
		"../../HACKING.md") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts[strings.TrimPrefix(path, "../../")] = string(text)
	}
	return texts
}

// codePassage is a code block of a document, or code within its text.
type codePassage struct {
	line     int
	language string
	inline   bool
	text     string
}

var inlineCode = regexp.MustCompile("`([^`\n]+)`")

func findPassages(text string) (list []codePassage) {
	var block *codePassage
	for i, line := range strings.Split(text, "\n") {
		fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case isFence && block == nil:
			block = &codePassage{line: i + 2, language: fence}
		case isFence:
			list = append(list, *block)
			block = nil
		case block != nil:
			block.text += line + "\n"
		default:
			for _, m := range inlineCode.FindAllStringSubmatch(line, -1) {
				list = append(list, codePassage{line: i + 1, inline: true, text: m[1]})
			}
		}
	}
	return list
}

var (
	commandAt = regexp.MustCompile(`(?:^|[;(|&]\s*|\$\()(clusterctl|make)( [^|;>&)#]*)?`)
	shellWord = regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`)
)

// findCommands returns the commands of clusterctl and make in a passage. A block that does not begin with a command is
// the output of a command.
func findCommands(p codePassage) (list [][]string) {
	first := strings.Fields(p.text)
	if p.language != "" || len(first) == 0 ||
		!p.inline && !strings.Contains(" clusterctl make kubectl export (umask git go sudo ", " "+first[0]+" ") {
		return nil
	}
	for line := range strings.Lines(p.text) {
		line, _, _ = strings.Cut(line, " #") // without the comment
		for _, m := range commandAt.FindAllStringSubmatch(strings.TrimSpace(line), -1) {
			words := []string{m[1]}
			for _, w := range shellWord.FindAllString(m[2], -1) {
				words = append(words, strings.Trim(w, `'"[]`))
			}
			list = append(list, words)
		}
	}
	return list
}

// Every command of clusterctl and make in a document exists and accepts the shown flags and arguments.
func TestCommandsInDocumentsExist(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for path, text := range documentTexts(t) {
		for _, p := range findPassages(text) {
			for _, words := range findCommands(p) {
				found++
				var err error
				if words[0] == "make" {
					err = makeError(string(makefile), words[1:])
				} else {
					err = commandError(newRoot(), words[1:], p.inline)
				}
				if err != nil {
					t.Errorf("%s:%d: %s: %v", path, p.line, strings.Join(words, " "), err)
				}
			}
		}
	}
	if found < 80 {
		t.Errorf("%d commands were found, there are more", found)
	}
}

// commandError returns the reason why a command line is not valid. A mention within a text may omit arguments.
func commandError(root *cobra.Command, args []string, mention bool) error {
	c, rest, err := root.Find(toDoubleDash(root, args))
	if err != nil {
		return err
	}
	if c.DisableFlagParsing {
		return nil
	}
	c.InitDefaultHelpFlag()
	c.InitDefaultVersionFlag()
	var unknown error
	if err := c.ParseFlags(rest); err != nil && !(mention && strings.Contains(err.Error(), "flag needs an argument")) {
		unknown = err
	}
	switch given := c.Flags().Args(); {
	case unknown != nil:
		return unknown
	case c.HasSubCommands() && len(given) > 0:
		return fmt.Errorf("%s has no subcommand %q", c.CommandPath(), given[0])
	case mention && len(given) == 0:
		return nil
	default:
		return c.ValidateArgs(given)
	}
}

// makeError returns the reason why make does not accept words. Targets must have a help text, and the Makefile must use
// the variables.
func makeError(makefile string, words []string) error {
	for _, w := range words {
		name, _, variable := strings.Cut(w, "=")
		target := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `:`)
		switch {
		case variable && !strings.Contains(makefile, "$("+name+")") && !strings.Contains(makefile, "$(or $("+name):
			return fmt.Errorf("the Makefile uses no variable %s", name)
		case !variable && !target.MatchString(makefile):
			return fmt.Errorf("the Makefile has no target %s", name)
		}
	}
	return nil
}

// The checks report invalid command lines, so that an outdated page does not pass.
func TestInvalidCommandsAreFound(t *testing.T) {
	for _, line := range []string{"certs rotat all", "plan -no-such-flag", "etcd snapshot restore a " +
		"b", "apply one two", "nothing", "certs rotate"} {
		if err := commandError(newRoot(), strings.Fields(line), false); err == nil {
			t.Errorf("clusterctl %s is taken for a command", line)
		}
	}
	if err := commandError(newRoot(), strings.Fields("certs rotate"), true); err != nil {
		t.Errorf("a mention of clusterctl certs rotate: %v", err)
	}
	if makeError("demo: build ## x\n\t$(A)\n", []string{"demo", "A=1"}) != nil ||
		makeError("demo:\n", []string{"demos"}) == nil ||
		makeError("demo:\n", []string{"A=1"}) == nil {
		t.Error("targets and variables of a Makefile are not distinguished from others")
	}
	if got := findCommands(codePassage{text: "Error: clusterctl x\nclusterctl y makes it\n"}); got != nil {
		t.Errorf("what a command prints is taken for commands: %q", got)
	}
}

var variableReference = regexp.MustCompile(`var\.([a-z0-9_]+)`)

// Every configuration in a document is valid, together with the variables and machines that it leaves to the reader.
func TestConfigurationsInDocumentsAreValid(t *testing.T) {
	found := 0
	for path, text := range documentTexts(t) {
		cluster := ""
		const some = "cluster \"c\" {}\nmachine \"m\" {\n  address = \"192.0.2.9\"\n  roles = [\"control-plane\"]\n}\n"
		for _, p := range findPassages(text) {
			if p.language != "hcl" {
				continue
			}
			found++
			dir, shown := t.TempDir(), p.text
			if !strings.Contains(shown, "cluster \"") { // it continues what the document has shown before
				shown = cmp.Or(cluster, some) + shown
			} else if !strings.Contains(shown, "machine \"") {
				shown += "machine \"m\" {\n  address = \"192.0.2.9\"\n  roles = [\"control-plane\"]\n}\n"
			}
			if cluster == "" && strings.Contains(p.text, "cluster \"") {
				cluster = shown
			}
			for _, m := range variableReference.FindAllStringSubmatch(shown, -1) {
				shown += fmt.Sprintf("variable %q { default = \"x\" }\n", m[1])
			}
			if err := os.WriteFile(filepath.Join(dir, "cluster.hcl"), []byte(shown), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`archive = "([^"]+)"`).FindAllStringSubmatch(shown, -1) {
				writeImage(t, filepath.Join(dir, m[1]))
			}
			root, out := newRoot(), &bytes.Buffer{}
			root.SetArgs([]string{"validate", dir})
			root.SetOut(out)
			root.SetErr(out)
			if code := runCommand(t.Context(), root); code != 0 {
				t.Errorf("%s:%d: clusterctl validate of what is shown gives %d: %s", path, p.line, code, out)
			}
		}
	}
	if found < 4 {
		t.Errorf("%d configurations were found, there are more", found)
	}
}

// writeImage writes an archive of an image without layers.
func writeImage(t *testing.T, path string) {
	t.Helper()
	ref, err := registry.NewTag("shop/web:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(path, ref, empty.Image); err != nil {
		t.Fatal(err)
	}
}
