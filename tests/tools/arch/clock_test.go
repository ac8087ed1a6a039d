package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Controllers use only the clock of loop.Context, which tests control.
func TestControllersUseTheGivenClock(t *testing.T) {
	clocks := map[string][]string{
		"time":   {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer"},
		"metav1": {"Now", "NowMicro"},
	}
	const root = "../../../daemons/controllers"
	files := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
			filepath.Dir(path) == filepath.Join(root, "loop") {
			return err
		}
		files++
		positions := token.NewFileSet()
		file, err := parser.ParseFile(positions, path, nil, 0)
		if err != nil {
			return err
		}
		for _, i := range file.Imports {
			if i.Path.Value == `"k8s.io/apimachinery/pkg/util/wait"` {
				t.Errorf("%s: waits by a clock of its own", positions.Position(i.Pos()))
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if of, ok := s.X.(*ast.Ident); ok && slices.Contains(clocks[of.Name], s.Sel.Name) {
					t.Errorf("%s: %s.%s; loop.Context has the clock", positions.Position(s.Pos()), of.Name, s.Sel.Name)
				}
			}
			return true
		})
		return nil
	})
	if err != nil || files == 0 {
		t.Errorf("%d files were read: %v", files, err)
	}
}
