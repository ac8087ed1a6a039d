package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// sourcePackages are the modules whose doc comments contain the schema: which fields are optional, which types are
// enumerated, and by which keys the items of a list are identified.
var sourcePackages = []string{
	"k8s.io/api/...",
	"k8s.io/apimachinery/pkg/apis/meta/v1",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1",
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1",
}

// docMarkers are the lines of doc comments that begin with a plus sign: name to value.
type docMarkers map[string]string

func (m docMarkers) hasMarker(name string) bool { _, ok := m[name]; return ok }

// docComments are the markers of types in the sources.
type docComments struct {
	fields map[string]docMarkers // by package path, type and field: "k8s.io/api/apps/v1.DeploymentSpec.Replicas"
	enums  map[string][]string   // by package path and type; values behind a feature gate begin with "?"
}

func (d *docComments) field(of reflect.Type, name string) docMarkers {
	return d.fields[of.PkgPath()+"."+of.Name()+"."+name]
}

// enum returns the values of an enumerated type, and nil for any other type.
func (d *docComments) enum(of reflect.Type) []string { return d.enums[of.PkgPath()+"."+of.Name()] }

func readDocComments() (*docComments, error) {
	out, err := exec.Command("go", append([]string{"list", "-f", "{{.ImportPath}} " +
		"{{.Dir}}"}, sourcePackages...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("find the published types: %w", err)
	}
	d := &docComments{fields: map[string]docMarkers{}, enums: map[string][]string{}}
	for line := range strings.Lines(string(out)) {
		path, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		if err := d.readPackage(path, dir); err != nil {
			return nil, fmt.Errorf("read the published types of %s: %w", path, err)
		}
	}
	return d, nil
}

func (d *docComments) readPackage(path, dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return err
	}
	set := token.NewFileSet()
	values := map[string][]string{}
	for _, name := range files {
		if base := filepath.Base(name); strings.HasSuffix(base, "_test.go") || strings.Contains(base, "generated") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			if decl, ok := decl.(*ast.GenDecl); ok {
				d.readDeclaration(path, decl, values)
			}
		}
	}
	for of, list := range values {
		if _, ok := d.enums[path+"."+of]; ok {
			slices.Sort(list)
			d.enums[path+"."+of] = list
		}
	}
	return nil
}

func (d *docComments) readDeclaration(path string, decl *ast.GenDecl, values map[string][]string) {
	for _, spec := range decl.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			if m := markersOf(decl.Doc, spec.Doc); m.hasMarker("enum") || m.hasMarker("k8s:enum") {
				d.enums[path+"."+spec.Name.Name] = nil
			}
			in, ok := spec.Type.(*ast.StructType)
			if !ok {
				continue
			}
			for _, f := range in.Fields.List {
				for _, name := range f.Names {
					d.fields[path+"."+spec.Name.Name+"."+name.Name] = markersOf(f.Doc)
				}
			}
		case *ast.ValueSpec:
			of, ok := spec.Type.(*ast.Ident)
			if !ok || len(spec.Values) != 1 {
				continue
			}
			if v, ok := spec.Values[0].(*ast.BasicLit); ok && v.Kind == token.STRING {
				text, err := strconv.Unquote(v.Value)
				if err != nil {
					continue
				}
				if m := markersOf(spec.Doc); m.hasMarker("featureGate") || m.hasMarker("k8s:ifEnabled") ||
					m.hasMarker("k8s:ifDisabled") {
					text = "?" + text
				}
				values[of.Name] = append(values[of.Name], text)
			}
		}
	}
}

// markersOf returns the markers of doc comments.
func markersOf(docs ...*ast.CommentGroup) docMarkers {
	m := docMarkers{}
	for _, doc := range docs {
		if doc == nil {
			continue
		}
		for _, c := range doc.List {
			text := strings.TrimSpace(strings.TrimPrefix(c.Text, "//"))
			if !strings.HasPrefix(text, "+") {
				continue
			}
			if strings.HasPrefix(text, "+k8s:ifEnabled(") || strings.HasPrefix(text, "+k8s:ifDisabled(") {
				m[text[1:strings.Index(text, "(")]] = text
				continue
			}
			if strings.HasPrefix(text, "+k8s:alpha") {
				continue // an alpha marker has no effect
			}
			if rest, ok := strings.CutPrefix(text, "+k8s:beta"); ok {
				if _, rest, ok = strings.Cut(rest, "=+"); ok {
					text = "+" + rest
				}
			}
			name, value, _ := strings.Cut(text[1:], "=")
			m[name] = value
		}
	}
	return m
}
