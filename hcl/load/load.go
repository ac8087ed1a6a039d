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
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/zclconf/go-cty/cty"

	"clusterctl/hcl/block"
	"clusterctl/hcl/config"
	"clusterctl/hcl/data"
)

// Extension is that of configuration files.
const Extension = ".hcl"

// Options says what to load.
type Options struct {
	Path     string   // a folder, or one file; empty means the current folder
	Vars     []string // name=value, in order
	VarFiles []string // in order, before Vars
	Environ  []string // as os.Environ

	Now      time.Time         // of the run, which timestamp() gives; zero means the time of the call
	Programs bool              // run those of data "external"; otherwise what they say is unknown
	Texts    map[string]string // of files, by absolute path, in place of what is on the disk
	// the folder may be a module: it needs no cluster block, and values that nobody gives are unknown
	Module    bool
	Values    map[string]cty.Value          // of variables, stronger than all others
	Overrides map[string]cty.Value          // what data blocks give, by address, instead of being read
	Live      map[LiveObject]map[string]any // objects of the cluster that were read; nil for one that is not there

	// Made returns the objects of a workload, which Load then validates as the API server does. nil disables this.
	Made func(config.Workload) ([]map[string]any, error)
}

// Configuration is what was loaded.
type Configuration struct {
	Cluster   *config.Cluster
	Dir       string
	Files     map[string]*hcl.File
	Scope     *hcl.EvalContext // what an expression at the top level sees
	Outputs   cty.Value        // an object of the outputs of the top level
	Graph     []Declaration    // what was declared, in the order of the files
	Asked     []LiveObject     // what has to be read from the cluster to know the rest
	parser    *hclparse.Parser
	headers   map[config.Source]*hcl.Range // of the blocks
	texts     map[string]string
	module    bool
	programs  bool
	overrides map[string]cty.Value
	live      map[LiveObject]map[string]any
	now       time.Time
	uncertain bool // there are unknown values
	hidden    bool // there are sensitive values: diagnostics must not show any
}

func (o Options) now() time.Time {
	if o.Now.IsZero() {
		return time.Now()
	}
	return o.Now
}

// Load reads, evaluates and validates a configuration. The Configuration is never
// nil, so that diagnostics can be printed with their source.
func Load(o Options) (*Configuration, hcl.Diagnostics) {
	c := &Configuration{
		Cluster:   &config.Cluster{},
		Dir:       o.Path,
		parser:    hclparse.NewParser(),
		headers:   map[config.Source]*hcl.Range{},
		texts:     o.Texts,
		module:    o.Module,
		programs:  o.Programs,
		overrides: o.Overrides,
		live:      o.Live,
		now:       o.now(),
	}
	defer func() { c.Files = c.parser.Files() }()
	paths, dir, err := files(o.Path)
	c.Dir = dir
	if err != nil {
		return c, hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "No configuration", Detail: err.Error()}}
	}
	blocks, diags := c.read(paths)
	if diags.HasErrors() {
		return c, diags
	}
	e := newEvaluator(c, dir, dir)
	e.fetched = &fetched{root: dir}
	diags = append(diags, e.declare(blocks)...)
	if diags.HasErrors() {
		return c, diags
	}
	var more hcl.Diagnostics
	e.given, more = e.gather(c.parser, o)
	diags = append(diags, more...)
	diags = append(diags, once(block.SuggestFunctions(e.run(), FunctionNames()))...)
	c.Scope, c.Graph, c.Outputs = e.everything(), e.graph(), e.kinds["output"].whole()
	if diags.HasErrors() {
		return c, diags
	}
	clusters := 0
	for _, b := range blocks {
		if b.Type == "cluster" {
			if clusters++; clusters > 1 {
				diags = append(
					diags,
					&hcl.Diagnostic{
						Severity: hcl.DiagError,
						Summary:  "Second cluster block",
						Detail:   "The files of a folder are one configuration, of one cluster.",
						Subject:  b.DefRange.Ptr(),
					},
				)
			}
		}
	}
	if clusters == 0 && o.Module {
		return c, diags
	}
	if clusters == 0 {
		return c, append(
			diags,
			&hcl.Diagnostic{
				Severity: hcl.DiagError,
				Summary:  "No cluster block",
				Detail:   fmt.Sprintf("The configuration in %s has no cluster \"NAME\" { … } block.", dir),
			},
		)
	}
	diags = append(diags, block.Validate(c.Cluster, func(s config.Source) *hcl.Range { return c.headers[s] })...)
	if o.Made != nil && !diags.HasErrors() {
		diags = append(diags, c.checkWorkloads(o.Made)...)
	}
	return c, diags
}

// checkWorkloads validates the objects of all workloads as the API server does.
func (c *Configuration) checkWorkloads(made func(config.Workload) ([]map[string]any, error)) (diags hcl.Diagnostics) {
	for _, w := range c.Cluster.Workloads {
		objects, err := made(w)
		errs := []error{err}
		for _, o := range objects {
			errs = append(errs, block.CheckObject(o))
		}
		if err := errors.Join(errs...); err != nil {
			diags = append(diags, problem(c.headers[w.Source], "Workload that the API refuses", "%s: %s", w.Address,
				sentence(err.Error())))
		}
	}
	return diags
}

// text is that of a file, or what an editor has of it.
func (c *Configuration) text(path string) ([]byte, error) {
	if len(c.texts) > 0 {
		if absolute, err := filepath.Abs(path); err == nil {
			if text, ok := c.texts[absolute]; ok {
				return []byte(text), nil
			}
		}
	}
	return data.File(path)
}

// once leaves out what is said again of another instance of a block.
func once(diags hcl.Diagnostics) (list hcl.Diagnostics) {
	type text struct {
		summary, detail string
		at              hcl.Range
	}
	said := map[text]bool{}
	for _, d := range diags {
		key := text{summary: d.Summary, detail: d.Detail}
		if d.Subject != nil {
			key.at = *d.Subject
		}
		if !said[key] {
			said[key] = true
			list = append(list, d)
		}
	}
	return list
}

// read parses files and returns the blocks in them.
func (c *Configuration) read(paths []string) (blocks hcl.Blocks, diags hcl.Diagnostics) {
	for _, path := range paths {
		text, err := c.text(path)
		if err != nil {
			diags = append(
				diags,
				&hcl.Diagnostic{Severity: hcl.DiagError, Summary: "File that cannot be read", Detail: err.Error()},
			)
			continue
		}
		f, more := parse(c.parser, text, path)
		diags = append(diags, more...)
		if f == nil || more.HasErrors() {
			continue
		}
		content, more := block.TopContent(f.Body)
		diags = append(diags, more...)
		if content != nil {
			blocks = append(blocks, content.Blocks...)
		}
	}
	return blocks, diags
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
		if name := e.Name(); !e.IsDir() &&
			(strings.HasSuffix(name, Extension) || strings.HasSuffix(name, JSONExtension)) &&
			!strings.HasPrefix(name, ".") &&
			!strings.HasSuffix(name, TestExtension) {
			list = append(list, filepath.Join(path, name))
		}
	}
	if len(list) == 0 {
		return nil, path, fmt.Errorf(
			"there is no *%s file in %s; see the examples, or name the folder as an argument",
			Extension,
			path,
		)
	}
	sort.Strings(list)
	return list, path, nil
}

// Evaluate returns the value of an expression at the top level, as console does.
func (c *Configuration) Evaluate(expr hcl.Expression) (cty.Value, hcl.Diagnostics) {
	return expr.Value(c.Scope)
}
