package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
)

// source is a file to check.
type source struct {
	path  string
	lines []string
	fset  *token.FileSet
	file  *ast.File // nil for a document, and for generated code
	raw   []bool    // by line: whether a raw string covers a part of it
}

func readSource(path string) (*source, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parse(path, text)
}

func parse(path string, text []byte) (*source, error) {
	s := &source{path: path, lines: strings.Split(string(text), "\n"), fset: token.NewFileSet()}
	s.raw = make([]bool, len(s.lines)+1)
	if !strings.HasSuffix(path, ".go") {
		return s, nil
	}
	file, err := parser.ParseFile(s.fset, path, text, parser.ParseComments)
	if err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	if ast.IsGenerated(file) {
		s.lines = nil
		return s, nil
	}
	s.file = file
	ast.Inspect(file, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING && strings.HasPrefix(l.Value, "`") {
			for line := s.lineOf(l.Pos()); line <= s.lineOf(l.End()); line++ {
				s.raw[line-1] = true
			}
		}
		return true
	})
	return s, nil
}

func (s *source) lineOf(p token.Pos) int { return s.fset.Position(p).Line }

func (s *source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }
