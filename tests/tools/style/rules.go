package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"strings"
)

const (
	maxColumns       = 120
	maxTableRow      = 200
	tabColumns       = 4 // columns of a tab
	maxFileLines     = 500
	maxFunctionLines = 80
	minNameRunes     = 3
)

// lineWidth returns the width of a line.
func lineWidth(line string) (n int) {
	for _, r := range line {
		if n++; r == '\t' {
			n += tabColumns - 1
		}
	}
	return n
}

// longLines finds lines that are too long. Raw strings are data, and a single word cannot be broken.
func longLines(s *source) (found []finding) {
	document, code := strings.HasSuffix(s.path, ".md"), false
	for i, line := range s.lines {
		text := strings.TrimSpace(line)
		limit := maxColumns
		switch {
		case s.raw[i]:
			continue
		case document && strings.HasPrefix(text, "```"):
			code = !code
			continue
		case code:
			continue
		case document && strings.HasPrefix(text, "|"):
			limit = maxTableRow
		}
		words := strings.Fields(strings.TrimLeft(text, "/*-> "))
		if n := lineWidth(line); n > limit && len(words) > 1 {
			found = append(found, finding{i + 1, fmt.Sprintf("%d columns, at most %d", n, limit)})
		}
	}
	return found
}

// docComments finds doc comments of declarations that do not begin with the identifier.
func docComments(s *source) (found []finding) {
	check := func(doc *ast.CommentGroup, name string) {
		if doc == nil {
			return
		}
		text := strings.TrimSpace(doc.Text())
		for _, article := range []string{"A ", "An ", "The "} {
			text = strings.TrimPrefix(text, article)
		}
		first := regexp.MustCompile(`^\w*`).FindString(text)
		if text != "" && first != name && !strings.HasPrefix(text, "Deprecated:") {
			found = append(found, finding{s.lineOf(doc.Pos()), "the doc comment of " + name + " does not begin with " +
				"its name"})
		}
	}
	s.declarations(func(name *ast.Ident, doc *ast.CommentGroup) {
		if !s.isTest() || !testNamePattern.MatchString(name.Name) { // those have sentences about behaviour
			check(doc, name.Name)
		}
	})
	return found
}

var testNamePattern = regexp.MustCompile(`^(Test|Benchmark|Fuzz|Example)`)

// declarations calls visit for every package-level identifier, and for methods.
func (s *source) declarations(visit func(name *ast.Ident, doc *ast.CommentGroup)) {
	if s.file == nil {
		return
	}
	for _, d := range s.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			visit(d.Name, d.Doc)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					visit(spec.Name, declarationDoc(d, spec.Doc))
				case *ast.ValueSpec:
					visit(spec.Names[0], declarationDoc(d, spec.Doc))
				}
			}
		}
	}
}

// declarationDoc returns the doc comment of a declaration of its own, or that of one in parentheses.
func declarationDoc(d *ast.GenDecl, own *ast.CommentGroup) *ast.CommentGroup {
	if d.Lparen == token.NoPos {
		return d.Doc
	}
	return own
}

// bannedPatterns are words that private language is made of, with what to write instead.
var bannedPatterns = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`(?i)\bsays? whether\b`), "reports whether"},
	{regexp.MustCompile(`(?i)\bwho (asks|asked|is asked)\b`), "the client, the caller, the request"},
	{regexp.MustCompile(`(?i)\b(nobody|somebody)\b`), "no client, another user, or whoever it is"},
	{regexp.MustCompile(`(?i)\bwhat (is there|there is|others have)\b`), "the existing objects, the cache, or what it is"},
	{regexp.MustCompile(`(?i)\b(bears?|bearing|furnish\w*|misfits?)\b`), "create, default, invalid object"},
	{regexp.MustCompile(`(?i)\b(told|tells)\b`), "report, inform, log, record"},
	{regexp.MustCompile(`(?i)\b(anew|in vain|at hand)\b`), "again, without success, available"},
	{regexp.MustCompile(`(?i)\b(hearers?|goes on with|gone on with)\b`), "subscriber, continues"},
	{regexp.MustCompile(`(?i)\bmust-show\b`), "nothing: it is no word of the project"},
}

// bannedNames are words that identifiers must not consist of: private language, and verbs and adjectives where a noun
// is meant.
var bannedNames = regexp.MustCompile(
	`(?i)^(bear|settle|settled|told|tell|mostTo|furnish(ing|ed)?|misfit|anew|whoever|somebody|nobody|` +
		`is|was|had|known|gone|begun|began|said|says|asked|may|why|hearer)$`)

// bannedWords finds banned words in comments, in identifiers, and in the failure messages of tests. Other strings of
// tests are data.
func bannedWords(s *source) (found []finding) {
	if s.file == nil {
		return nil
	}
	check := func(at token.Pos, text string) {
		for _, b := range bannedPatterns {
			if word := b.pattern.FindString(text); word != "" {
				found = append(found, finding{s.lineOf(at), fmt.Sprintf("%q: write %s", word, b.instead)})
			}
		}
	}
	for _, group := range s.file.Comments {
		for _, c := range group.List {
			check(c.Pos(), c.Text)
		}
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if message := failureMessage(n); message != nil && s.isTest() {
				check(message.Pos(), message.Value)
			}
		case *ast.SelectorExpr: // the name belongs to another place
			return true
		case *ast.Ident:
			if n.Obj != nil && n.Obj.Pos() == n.Pos() && bannedNames.MatchString(n.Name) {
				found = append(found, finding{s.lineOf(n.Pos()), fmt.Sprintf("the name %q: use a term of the "+
					"field", n.Name)})
			}
		}
		return true
	})
	return found
}

// failureMessage returns the literal message of a call such as t.Errorf, or nil.
func failureMessage(call *ast.CallExpr) *ast.BasicLit {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 || !failureMethods[method.Sel.Name] {
		return nil
	}
	message, _ := call.Args[0].(*ast.BasicLit)
	return message
}

// failureMethods are the methods of testing.T that take a message.
var failureMethods = map[string]bool{"Error": true, "Errorf": true, "Fatal": true, "Fatalf": true, "Log": true,
	"Logf": true}

// shortNames finds package-level identifiers of one or two letters. Methods are not package-level.
func shortNames(s *source) (found []finding) {
	if s.file == nil {
		return nil
	}
	methods := map[*ast.Ident]bool{}
	for _, d := range s.file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
			methods[f.Name] = true
		}
	}
	s.declarations(func(name *ast.Ident, _ *ast.CommentGroup) {
		if len([]rune(name.Name)) < minNameRunes && name.Name != "_" && !methods[name] {
			found = append(found, finding{s.lineOf(name.Pos()), fmt.Sprintf("%q is too short for a "+
				"package", name.Name)})
		}
	})
	return found
}

// longParts finds files and functions that have grown too long. `//style:long REASON` above a function, or before the
// package clause, states why it is long. A reason that is no longer needed is a finding, too.
func longParts(s *source) (found []finding) {
	if s.file == nil {
		return nil
	}
	check := func(line int, what string, lines, limit int, hasReason bool) {
		switch {
		case lines > limit && !hasReason:
			found = append(found, finding{line, fmt.Sprintf("%s has %d lines, at most %d", what, lines, limit)})
		case lines <= limit && hasReason:
			found = append(found, finding{line, fmt.Sprintf("%s has only %d lines: remove the reason for its length",
				what, lines)})
		}
	}
	check(1, "the file", len(s.lines)-1, maxFileLines, hasReason(s.file.Comments, s.file.Package))
	for _, d := range s.file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		check(s.lineOf(f.Pos()), f.Name.Name, s.lineOf(f.End())-s.lineOf(f.Pos())+1, maxFunctionLines,
			f.Doc != nil && hasReason([]*ast.CommentGroup{f.Doc}, f.Pos()))
	}
	return found
}

// hasReason reports whether a reason for the length, of three words at least, stands in comments before a position.
func hasReason(groups []*ast.CommentGroup, before token.Pos) bool {
	for _, g := range groups {
		for _, c := range g.List {
			reason, ok := strings.CutPrefix(c.Text, "//style:long ")
			if ok && c.Pos() < before && len(strings.Fields(reason)) >= 3 {
				return true
			}
		}
	}
	return false
}
