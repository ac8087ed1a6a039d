package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/spf13/cobra"

	"clusterctl/hcl/config"
	"clusterctl/hcl/convert"
	"clusterctl/hcl/data"
	"clusterctl/hcl/load"
	"clusterctl/provision/workload"
)

// Bounds of the input of convert.
const (
	maxConvertFiles = 10_000
	maxConvertBytes = 64 << 20 // of all files
)

// convertCommand is the command that converts between YAML and the configuration language.
type convertCommand struct {
	to      string
	format  string // of the report
	objects bool   // write no workload blocks

	from      string
	profiles  []string // of a Compose project
	env       bool     // use the environment for a Compose project
	hostPaths bool     // convert bind mounts of a Compose project
}

func newConvert() *cobra.Command {
	v := &convertCommand{}
	c := &cobra.Command{
		Use:   "convert [FILE|FOLDER|-]…",
		Short: "Convert Kubernetes YAML and Compose files to HCL, and declared objects to YAML",
		Long: `Convert Kubernetes objects in YAML or JSON to blocks of a configuration, on standard output. Arguments are files,
folders (their *.yaml, *.yml and *.json files) or - for standard input, which is also the default.

A Deployment with its Service and ConfigMap becomes a workload block if that block declares exactly the same objects.
Every other object becomes an object block. With -to yaml, the objects that a configuration declares are written as
YAML.

With -from compose, the arguments are the files of a Compose project, which are merged in their order. The project
becomes a namespace, its services Deployments and Services, its jobs CronJobs, its volumes claims of 1Gi. Variables come
from the .env file beside the first file, and with -env from the environment. Files outside of the folder of the first
file are not read, and nothing is fetched. The output contains the project's secrets. The program gitops-controller
beside clusterctl loads the project.

Each part that cannot be converted is one line on standard error: FILE:LINE: SUBJECT: REASON. With -o json, the output is
one JSON object with the fields text and problems. Comments are not converted. Symbolic links in folders are refused.

Exits with 0 if everything was converted, with 3 if something was not, and with 1 if there is no output.`,
		Example: `  clusterctl convert deployment.yaml service.yaml > shop.hcl
  helm template shop ./chart | clusterctl convert > shop.hcl
  clusterctl convert -from compose compose.yaml > shop.hcl
  clusterctl convert -to yaml . > shop.yaml`,
		RunE: v.run,
	}
	c.Flags().StringVar(&v.from, "from", "yaml", "`language` of the input of a conversion to hcl: yaml or compose")
	c.Flags().StringArrayVar(&v.profiles, "profile", nil, "activate a `profile` of the Compose project")
	c.Flags().BoolVar(&v.env, "env", false, "use variables of the environment in the Compose project")
	c.Flags().BoolVar(&v.hostPaths, "host-paths", false, "mount the paths of bind mounts from the nodes")
	c.Flags().StringVar(&v.to, "to", "hcl", "`language` of the output: hcl or yaml")
	c.Flags().StringVarP(&v.format, "output", "o", "text", "`format` of the output: text or json")
	c.Flags().BoolVar(&v.objects, "objects", false, "write object blocks only, no workload blocks")
	for flag, values := range map[string][]string{"from": {"yaml", "compose"}, "to": {"hcl", "yaml"},
		"output": {"text", "json"}} {
		_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return c
}

// conversion is the result with -o json.
type conversion struct {
	Text     string            `json:"text"`
	Problems []convert.Problem `json:"problems"`
}

func (v *convertCommand) run(c *cobra.Command, args []string) error {
	if v.format != "text" && v.format != "json" {
		return fmt.Errorf("-output %q is not text or json", v.format)
	}
	var result conversion
	var err error
	switch v.to {
	case "hcl":
		result, err = v.toHCL(c, args)
	case "yaml":
		result, err = toYAML(c, args)
	default:
		return fmt.Errorf("-to %q is not hcl or yaml", v.to)
	}
	if err != nil {
		return err
	}
	convert.SortProblems(result.Problems)
	if v.format == "json" {
		if result.Problems == nil {
			result.Problems = []convert.Problem{}
		}
		err = printJSON(c, result)
	} else {
		for _, p := range result.Problems {
			fmt.Fprintln(c.ErrOrStderr(), config.EscapeLine(p.String()))
		}
		_, err = io.WriteString(c.OutOrStdout(), result.Text)
	}
	if err == nil && len(result.Problems) > 0 {
		return exitCode(3)
	}
	return err
}

// toHCL converts YAML to HCL.
func (v *convertCommand) toHCL(c *cobra.Command, args []string) (r conversion, err error) {
	if len(args) == 0 {
		args = []string{"-"}
	}
	in := &convertInput{}
	switch v.from {
	case "compose":
		converted, err := v.readCompose(c.Context(), args)
		if err != nil {
			return r, err
		}
		in.objects, in.problems, args = converted.Objects, converted.Problems, nil
	case "yaml":
	default:
		return r, fmt.Errorf("-from %q is not yaml or compose", v.from)
	}
	for _, arg := range args {
		if err := in.add(c.InOrStdin(), arg); err != nil {
			return r, err
		}
	}
	render := convert.Renderer(workloadObjects)
	if v.objects {
		render = nil
	}
	text, more := convert.HCL(in.objects, render)
	r.Text, r.Problems = string(text), append(in.problems, more...)
	if len(text) == 0 && len(r.Problems) == 0 {
		return r, errors.New("the input has no objects")
	}
	return r, nil
}

// workloadObjects returns the objects of the workload blocks in a text.
func workloadObjects(text string) ([]map[string]any, error) {
	const path = "/converted" + load.Extension
	configuration, diags := load.Load(load.Options{Path: path, Root: "/", Texts: map[string]string{path: text},
		WorkloadObjects: workload.ObjectsOf})
	if diags.HasErrors() {
		return nil, diags
	}
	var objects []map[string]any
	for _, w := range configuration.Cluster.Workloads {
		list, err := workload.ObjectsOf(w)
		if err != nil {
			return nil, err
		}
		objects = append(objects, list...)
	}
	return objects, nil
}

// convertInput is what the files of a conversion contain.
type convertInput struct {
	objects  []convert.Object
	problems []convert.Problem
	files    int
	bytes    int
}

// add reads a file, the files of a folder, or standard input.
func (in *convertInput) add(stdin io.Reader, arg string) error {
	if arg == "-" {
		text, err := io.ReadAll(io.LimitReader(stdin, maxConvertBytes+1))
		if err != nil {
			return fmt.Errorf("read standard input: %w", err)
		}
		return in.read("-", text)
	}
	info, err := os.Stat(arg)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return in.addFile(arg)
	}
	return filepath.WalkDir(arg, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && path != arg && strings.HasPrefix(e.Name(), "."):
			return fs.SkipDir
		case !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)) || e.IsDir():
			return nil
		case !e.Type().IsRegular():
			in.problems = append(in.problems, convert.Problem{File: path, Line: 1, Subject: "file",
				Message: "it is not a regular file; name it as an argument to convert it"})
			return nil
		}
		return in.addFile(path)
	})
}

func (in *convertInput) addFile(path string) error {
	text, err := data.ReadFile(path)
	if err != nil {
		return err
	}
	return in.read(path, text)
}

// read adds the objects of a text.
func (in *convertInput) read(name string, text []byte) error {
	in.files++
	in.bytes += len(text)
	if in.files > maxConvertFiles || in.bytes > maxConvertBytes {
		return fmt.Errorf("%s: the input has more than %d files or %d MiB", name, maxConvertFiles, maxConvertBytes>>20)
	}
	objects, problems := convert.ReadYAML(name, text)
	in.objects, in.problems = append(in.objects, objects...), append(in.problems, problems...)
	return nil
}

// toYAML converts the objects that a configuration declares to YAML.
func toYAML(c *cobra.Command, args []string) (r conversion, err error) {
	if len(args) > 1 || len(args) == 1 && args[0] == "-" {
		return r, errors.New("-to yaml takes one folder or file of a configuration")
	}
	o := load.Options{Environ: os.Environ(), IsModule: true, WorkloadObjects: workload.ObjectsOf}
	if len(args) > 0 {
		o.Path = args[0]
	}
	configuration, diags := load.Load(o)
	if err := printDiagnostics(c, configuration, diags, true); err != nil {
		return r, err
	}
	if diags.HasErrors() {
		return r, exitCode(1)
	}
	cluster := configuration.Cluster
	r.Problems = unconverted(configuration)
	var objects []map[string]any
	for _, declared := range cluster.Objects {
		objects = append(objects, declared.Content)
		if len(declared.DependsOn) > 0 || declared.PreventDestroy {
			r.Problems = append(r.Problems, convert.Problem{File: declared.Source.File, Line: declared.Source.Line,
				Subject: declared.Address, Message: "depends_on and lifecycle have no counterpart in YAML"})
		}
	}
	for _, w := range cluster.Workloads {
		list, err := workload.ObjectsOf(w)
		if err != nil {
			return r, fmt.Errorf("%s: %w", w.Address, err)
		}
		objects = append(objects, list...)
		if len(w.DependsOn) > 0 || w.PreventDestroy {
			r.Problems = append(r.Problems, convert.Problem{File: w.Source.File, Line: w.Source.Line,
				Subject: w.Address, Message: "depends_on and lifecycle have no counterpart in YAML"})
		}
	}
	text, err := convert.YAML(objects)
	r.Text = string(text)
	return r, err
}

// convertedBlocks are the blocks that declare objects, or values of which nothing is left in YAML.
var convertedBlocks = []string{"object", "workload", "manifests", "variable", "locals", "output", "data", "module"}

// unconverted returns the blocks that declare no objects.
func unconverted(c *load.Configuration) (list []convert.Problem) {
	for file, parsed := range c.Files {
		body, ok := parsed.Body.(*hclsyntax.Body)
		if !ok {
			continue
		}
		for _, b := range body.Blocks {
			if !slices.Contains(convertedBlocks, b.Type) {
				list = append(list, convert.Problem{File: file, Line: b.TypeRange.Start.Line,
					Subject: strings.Join(append([]string{b.Type}, b.Labels...), "."),
					Message: "only objects, workloads and manifests are converted to YAML"})
			}
		}
	}
	for _, address := range c.Cluster.Deferred {
		list = append(list, convert.Problem{File: c.Dir, Line: 1, Subject: address,
			Message: "it depends on a value that is not known"})
	}
	return list
}
