// Command style checks what the style guide says of lines, doc comments, words, names and sizes in Go files and
// documents. It prints a line for each finding and exits with 1 if there is one.
//
//	go run ./tests/tools/style [-rules lines,docs] [FILE...]
//
// Without files it checks all files that Git tracks.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// rules is every rule, in the order of their findings.
var rules = []rule{
	{"lines", "lines of at most 120 columns, rows of tables of at most 200", longLines},
	{"docs", "doc comments begin with the identifier", docComments},
	{"words", "no words that readers stumble over, nor in failure messages of tests", bannedWords},
	{"names", "package-level identifiers have more than two letters", shortNames},
	{"size", "files of at most 500 lines, functions of at most 80, or a reason after //style:long", longParts},
}

// rule is a check of one file.
type rule struct {
	name, about string
	check       func(*source) []finding
}

// finding is a place that breaks a rule.
type finding struct {
	line int
	text string
}

func main() {
	chosen := flag.String("rules", "", "the rules to check, separated by commas; all by default")
	flag.Usage = usage
	flag.Parse()
	count, err := checkFiles(*chosen, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "style:", err)
		os.Exit(2)
	}
	if count > 0 {
		fmt.Fprintf(os.Stderr, "style: %d findings\n", count)
		os.Exit(1)
	}
}

func usage() {
	fmt.Fprintln(flag.CommandLine.Output(), "usage: style [-rules RULE,...] [FILE...]")
	for _, r := range rules {
		fmt.Fprintf(flag.CommandLine.Output(), "  %-6s %s\n", r.name, r.about)
	}
}

// checkFiles checks files and returns the number of findings.
func checkFiles(chosen string, files []string) (count int, err error) {
	apply := rules
	if chosen != "" {
		apply = nil
		for _, name := range strings.Split(chosen, ",") {
			at := slices.IndexFunc(rules, func(r rule) bool { return r.name == name })
			if at < 0 {
				return 0, fmt.Errorf("there is no rule %q", name)
			}
			apply = append(apply, rules[at])
		}
	}
	if len(files) == 0 {
		out, err := exec.Command("git", "ls-files", "-z", "*.go", "*.md").Output()
		if err != nil {
			return 0, fmt.Errorf("list the files that Git tracks: %w", err)
		}
		files = strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })
	}
	for _, path := range files {
		s, err := readSource(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted, and not yet committed
		} else if err != nil {
			return count, err
		}
		for _, r := range apply {
			for _, f := range r.check(s) {
				fmt.Printf("%s:%d: %s: %s\n", path, f.line, r.name, f.text)
				count++
			}
		}
	}
	return count, nil
}
