package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// A path may contain characters that are special in patterns. So files are listed with os.ReadDir, or matched with
// data.Matches, which separates the folder from the pattern.
func TestPatternsContainNoPaths(t *testing.T) {
	allowed := map[string]bool{
		"provision/host/ssh/openssh.go": true, // Include of ssh_config; home folders are escaped
	}
	const root = "../../.."
	found := 0
	for _, folder := range []string{"cmd", "daemons", "hcl", "provision", "certs"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			name, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			positions := token.NewFileSet()
			file, err := parser.ParseFile(positions, path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				s, ok := call.Fun.(*ast.SelectorExpr)
				if !ok || s.Sel.Name != "Glob" {
					return true
				}
				if of, ok := s.X.(*ast.Ident); !ok || of.Name != "filepath" && of.Name != "fs" {
					return true
				}
				found++
				if !isLiteral(file, call.Args[len(call.Args)-1]) && !allowed[name] {
					t.Errorf("%s: the pattern is not a literal", positions.Position(call.Pos()))
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found == 0 {
		t.Error("no call was found: the test looks for the wrong names")
	}
}

// isLiteral reports whether an expression is a literal, or the variable of a loop over literals.
func isLiteral(file *ast.File, e ast.Expr) bool {
	if _, ok := e.(*ast.BasicLit); ok {
		return true
	}
	name, ok := e.(*ast.Ident)
	if !ok {
		return false
	}
	literal := false
	ast.Inspect(file, func(n ast.Node) bool {
		loop, ok := n.(*ast.RangeStmt)
		if !ok || e.Pos() < loop.Pos() || e.Pos() > loop.End() {
			return true
		}
		value, named := loop.Value.(*ast.Ident)
		list, ok := loop.X.(*ast.CompositeLit)
		if !named || !ok || value.Name != name.Name {
			return true
		}
		literal = true
		for _, element := range list.Elts {
			if _, ok := element.(*ast.BasicLit); !ok {
				literal = false
			}
		}
		return true
	})
	return literal
}
