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

// Every field of the configuration is read by code outside the language. Otherwise the language would accept and ignore
// it. Fields are identified by name only.
func TestEveryFieldOfAConfigurationIsRead(t *testing.T) {
	read := map[string]bool{}
	for _, root := range []string{"../../../provision", "../../../cmd", "../../../hcl/config", "../../../hcl/load"} {
		eachFile(t, root, func(f *ast.File) {
			ast.Inspect(f, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					read[s.Sel.Name] = true
				}
				return true
			})
		})
	}
	fields := 0
	eachFile(t, "../../../hcl/config", func(f *ast.File) {
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			s, ok := spec.Type.(*ast.StructType)
			if !ok {
				return false
			}
			for _, field := range s.Fields.List {
				for _, name := range field.Names {
					fields++
					if name.IsExported() && !read[name.Name] {
						t.Errorf("nothing outside hcl/block reads %s.%s: refuse what it is decoded from, or carry "+
							"it out", spec.Name.Name, name.Name)
					}
				}
			}
			return false
		})
	})
	if fields == 0 {
		t.Error("no fields were found")
	}
}

// eachFile calls f with every Go file below root that is not a test.
func eachFile(t *testing.T, root string, f func(*ast.File)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err == nil {
			f(file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
