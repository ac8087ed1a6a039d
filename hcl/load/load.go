// Package load turns the files of a folder into one hcl/config.Cluster, or into
// diagnostics that point at the lines to change. What the blocks mean is hcl/block's.
package load

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/zclconf/go-cty/cty"

	"clusterctl/hcl/block"
	"clusterctl/hcl/config"
)

// Extension is that of configuration files.
const Extension = ".hcl"

// Options says what to load.
type Options struct {
	Path     string   // a folder, or one file; empty means the current folder
	Vars     []string // name=value, in order
	VarFiles []string // in order, before Vars
	Environ  []string // as os.Environ
}

// Configuration is what was loaded.
type Configuration struct {
	Cluster *config.Cluster
	Dir     string
	Files   map[string]*hcl.File
	Scope   *hcl.EvalContext // what an expression at the top level sees
	Graph   []Declaration    // what was declared, in the order of the files
	hidden  bool             // there are sensitive values: diagnostics must not show any
}

// Load reads, evaluates and validates a configuration. The Configuration is never
// nil, so that diagnostics can be printed with their source.
func Load(o Options) (*Configuration, hcl.Diagnostics) {
	c := &Configuration{Cluster: &config.Cluster{}, Files: map[string]*hcl.File{}, Dir: o.Path}
	parser := hclparse.NewParser()
	paths, dir, err := files(o.Path)
	c.Dir = dir
	if err != nil {
		return c, hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "No configuration", Detail: err.Error()}}
	}
	var diags hcl.Diagnostics
	var blocks hcl.Blocks
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "File that cannot be read", Detail: err.Error()})
			continue
		}
		f, more := parser.ParseHCL(text, path)
		diags = append(diags, more...)
		if f == nil || more.HasErrors() {
			continue
		}
		content, more := f.Body.Content(block.Schema())
		diags = append(diags, more...)
		if content != nil {
			blocks = append(blocks, content.Blocks...)
		}
	}
	c.Files = parser.Files()
	if diags.HasErrors() {
		return c, diags
	}
	e := newEvaluator(c, dir)
	diags = append(diags, e.declare(blocks)...)
	if diags.HasErrors() {
		return c, diags
	}
	given, more := e.given(parser, o)
	c.Files = parser.Files()
	diags = append(diags, more...)
	diags = append(diags, e.run(given)...)
	c.Scope, c.Graph = e.scope(), e.graph()
	if diags.HasErrors() {
		return c, diags
	}
	headers := map[config.Source]*hcl.Range{}
	clusters := 0
	for _, b := range blocks {
		headers[config.Source{File: b.DefRange.Filename, Line: b.DefRange.Start.Line}] = b.DefRange.Ptr()
		if b.Type == "cluster" {
			if clusters++; clusters > 1 {
				diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Second cluster block", Detail: "The files of a folder are one configuration, of one cluster.", Subject: b.DefRange.Ptr()})
			}
		}
	}
	if clusters == 0 {
		return c, append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "No cluster block", Detail: fmt.Sprintf("The configuration in %s has no cluster \"NAME\" { … } block.", dir)})
	}
	diags = append(diags, block.Validate(c.Cluster, func(s config.Source) *hcl.Range { return headers[s] })...)
	return c, diags
}

// files returns the configuration files of a folder, sorted, and the folder.
func files(path string) ([]string, string, error) {
	if path == "" {
		path = "."
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, path, fmt.Errorf("%s does not exist", path)
	}
	if err != nil {
		return nil, path, err
	}
	if !info.IsDir() {
		return []string{path}, filepath.Dir(path), nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, path, err
	}
	var list []string
	for _, e := range entries {
		if name := e.Name(); !e.IsDir() && strings.HasSuffix(name, Extension) && !strings.HasPrefix(name, ".") {
			list = append(list, filepath.Join(path, name))
		}
	}
	if len(list) == 0 {
		return nil, path, fmt.Errorf("there is no *%s file in %s; see the examples, or name the folder as an argument", Extension, path)
	}
	sort.Strings(list)
	return list, path, nil
}

// Evaluate returns the value of an expression at the top level, as console does.
func (c *Configuration) Evaluate(expr hcl.Expression) (cty.Value, hcl.Diagnostics) {
	return expr.Value(c.Scope)
}
