// Package load reads the files of a directory into a config.Cluster, or returns diagnostics that point to the lines to
// change. Package block defines the meaning of blocks.
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

// Extension is the extension of configuration files.
const Extension = ".hcl"

// Options determine what to load.
type Options struct {
	Path     string   // a directory or a file; empty means the current directory
	Vars     []string // name=value, in order
	VarFiles []string // in order, before Vars
	Environ  []string // as returned by os.Environ

	Now          time.Time         // the time of the run, which timestamp() returns; zero means the time of the call
	RunsPrograms bool              // run the programs of data "external"; otherwise their results are unknown
	Texts        map[string]string // contents of files by absolute path, which replace those on disk
	// IsModule means that the directory may be a module. It needs no cluster block, and variables without a value are
	// unknown.
	IsModule bool
	// Root, if not empty, is a directory above Path that no path in the configuration leaves, and the configuration has
	// objects only: blocks of a cluster, and functions and data whose results are not determined by files, are errors.
	Root      string
	Values    map[string]cty.Value // values of variables, which take precedence over all others
	Overrides map[string]cty.Value // values of data blocks by address, which replace reading them
	// objects that were read from the cluster; nil for objects that do not exist
	LiveObjects map[LiveObject]map[string]any

	// WorkloadObjects returns the objects of a workload, which Load then validates as the API server does. If it is
	// nil, they are not validated.
	WorkloadObjects func(config.Workload) ([]map[string]any, error)
}

// Configuration is a loaded configuration.
type Configuration struct {
	Cluster       *config.Cluster
	Dir           string
	Files         map[string]*hcl.File
	Scope         *hcl.EvalContext // scope of expressions at the top level
	Outputs       cty.Value        // an object with the outputs of the top level
	Graph         []Declaration    // the declarations, in the order of the files
	NeededObjects []LiveObject     // objects that must be read from the cluster to know the remaining values
	parser        *hclparse.Parser
	headers       map[config.Source]*hcl.Range // headers of the blocks
	texts         map[string]string
	isModule      bool
	root          string // Options.Root
	runsPrograms  bool
	overrides     map[string]cty.Value
	liveObjects   map[LiveObject]map[string]any
	now           time.Time
	hasUnknown    bool // some values are unknown
	hasSensitive  bool // some values are sensitive, so diagnostics must show none
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
		Cluster:      &config.Cluster{},
		Dir:          o.Path,
		parser:       hclparse.NewParser(),
		headers:      map[config.Source]*hcl.Range{},
		texts:        o.Texts,
		isModule:     o.IsModule,
		root:         o.Root,
		runsPrograms: o.RunsPrograms,
		overrides:    o.Overrides,
		liveObjects:  o.LiveObjects,
		now:          o.now(),
	}
	defer func() { c.Files = c.parser.Files() }()
	paths, dir := []string{o.Path}, filepath.Dir(o.Path)
	if _, ok := o.Texts[o.Path]; !ok {
		var err error
		if paths, dir, err = configurationFiles(o.Path); err != nil {
			c.Dir = dir
			return c, hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "No configuration", Detail: err.Error()}}
		}
	}
	c.Dir = dir
	blocks, diags := c.parseFiles(paths)
	if diags.HasErrors() {
		return c, diags
	}
	e := newEvaluator(c, dir, dir)
	e.fetched = &fetchedModules{root: dir, limit: o.Root}
	diags = append(diags, e.declare(blocks)...)
	if diags.HasErrors() {
		return c, diags
	}
	var more hcl.Diagnostics
	e.givenValues, more = e.collectValues(c.parser, o)
	diags = append(diags, more...)
	diags = append(diags, withoutRepeats(block.SuggestFunctions(e.evaluateModule(), FunctionNames()))...)
	c.Scope, c.Graph, c.Outputs = e.fullScope(), e.declarations(), e.kinds["output"].wholeObject()
	if diags.HasErrors() {
		return c, diags
	}
	at := func(s config.Source) *hcl.Range { return c.headers[s] }
	if o.Root != "" {
		diags = append(diags, block.ValidateObjects(c.Cluster, at)...)
		if o.WorkloadObjects != nil && !diags.HasErrors() {
			diags = append(diags, c.checkWorkloads(o.WorkloadObjects)...)
		}
		return c, diags
	}
	clusters := 0
	for _, b := range blocks {
		if b.Type == "cluster" {
			if clusters++; clusters > 1 {
				diags = append(diags, newError(b.DefRange.Ptr(), "Second cluster block",
					"The files of a folder are one configuration, of one cluster."))
			}
		}
	}
	if clusters == 0 && o.IsModule {
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
	diags = append(diags, block.Validate(c.Cluster, at)...)
	if o.WorkloadObjects != nil && !diags.HasErrors() {
		diags = append(diags, c.checkWorkloads(o.WorkloadObjects)...)
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
			diags = append(diags, newError(c.headers[w.Source], "Workload that the API refuses", "%s: %s", w.Address,
				toSentence(err.Error())))
		}
	}
	return diags
}

// fileText returns the content of a file, or its text in the editor.
func (c *Configuration) fileText(path string) ([]byte, error) {
	if len(c.texts) > 0 {
		if absolute, err := filepath.Abs(path); err == nil {
			if text, ok := c.texts[absolute]; ok {
				return []byte(text), nil
			}
		}
	}
	return data.ReadFile(path)
}

// withoutRepeats removes repeated diagnostics, which several instances of a block cause.
func withoutRepeats(diags hcl.Diagnostics) (list hcl.Diagnostics) {
	type text struct {
		summary, detail string
		at              hcl.Range
	}
	seen := map[text]bool{}
	for _, d := range diags {
		key := text{summary: d.Summary, detail: d.Detail}
		if d.Subject != nil {
			key.at = *d.Subject
		}
		if !seen[key] {
			seen[key] = true
			list = append(list, d)
		}
	}
	return list
}

// parseFiles parses files and returns the blocks in them.
func (c *Configuration) parseFiles(paths []string) (blocks hcl.Blocks, diags hcl.Diagnostics) {
	for _, path := range paths {
		text, err := c.fileText(path)
		if err != nil {
			diags = append(diags,
				&hcl.Diagnostic{Severity: hcl.DiagError, Summary: "File that cannot be read", Detail: err.Error()})
			continue
		}
		f, more := parseFile(c.parser, text, path)
		diags = append(diags, more...)
		if f == nil || more.HasErrors() {
			continue
		}
		content, more := block.TopLevelContent(f.Body)
		diags = append(diags, more...)
		if content != nil {
			blocks = append(blocks, content.Blocks...)
		}
	}
	return blocks, diags
}

// configurationFiles returns the sorted configuration files of a directory, and the directory.
func configurationFiles(path string) ([]string, string, error) {
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
		return nil, path, fmt.Errorf("there is no *%s file in %s; see the examples, or name the folder as an argument",
			Extension, path)
	}
	sort.Strings(list)
	return list, path, nil
}

// Evaluate returns the value of an expression at the top level, for the console command.
func (c *Configuration) Evaluate(expr hcl.Expression) (cty.Value, hcl.Diagnostics) {
	return expr.Value(c.Scope)
}
