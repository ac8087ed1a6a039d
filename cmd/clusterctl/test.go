package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"
	"github.com/zclconf/go-cty/cty"

	"clusterctl/hcl/data"
	"clusterctl/hcl/load"
	"clusterctl/provision/plan"
	"clusterctl/provision/rehearse"
	"clusterctl/provision/workload"
)

func newTest() *cobra.Command {
	var flags configFlags
	c := &cobra.Command{
		Use:   "test [FOLDER]",
		Short: "Run the tests of a configuration, on machines in memory",
		Long: `Run the tests of a configuration: the files *.clustertest.hcl in its folder and in its folder tests. Plans are made and
applied by what does it on real machines; the machines and the cluster are in memory and behave.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			path := "."
			if len(args) > 0 {
				path = args[0]
			}
			tests, diags, files := load.LoadTests(path)
			if err := printDiagnostics(c, &load.Configuration{Files: files}, diags, flags.noColor); err != nil {
				return err
			}
			if diags.HasErrors() {
				return exitCode(1)
			}
			passed, failed := 0, 0
			for _, t := range tests {
				good, bad, err := flags.test(c, path, t)
				if err != nil {
					return err
				}
				passed, failed = passed+good, failed+bad
			}
			fmt.Fprintf(c.OutOrStdout(), "%d passed, %d failed.\n", passed, failed)
			switch {
			case failed > 0:
				return exitCode(1)
			case passed == 0:
				return fmt.Errorf("there is no run in a file *%s in %s or its folder tests", load.TestExtension, path)
			}
			return nil
		},
	}
	flags.add(c)
	return c
}

// test carries out the runs of one file, each on the result of the previous one.
func (f *configFlags) test(c *cobra.Command, path string, t *load.Test) (passed, failed int, err error) {
	dir, err := os.MkdirTemp("", "clusterctl-test-")
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	stage, err := rehearse.New(dir)
	if err != nil {
		return 0, 0, err
	}
	before := map[string]cty.Value{}
	out := c.OutOrStdout()
	fmt.Fprintf(out, "%s\n", t.Path)
	for _, r := range t.Runs {
		configuration, diags := f.run(c.Context(), stage, path, r, before)
		if configuration.Files == nil {
			configuration.Files = map[string]*hcl.File{}
		}
		for name, file := range t.Files {
			configuration.Files[name] = file
		}
		if diags.HasErrors() || len(diags) > 0 {
			failed++
			fmt.Fprintf(out, "  run %q: fail\n", r.Name)
			if err := printDiagnostics(c, configuration, diags, f.noColor); err != nil {
				return passed, failed, err
			}
			continue
		}
		passed++
		fmt.Fprintf(out, "  run %q: pass\n", r.Name)
	}
	return passed, failed, nil
}

func (f *configFlags) run(
	ctx context.Context,
	stage *rehearse.Stage,
	path string,
	r *load.TestRun,
	before map[string]cty.Value,
) (*load.Configuration, hcl.Diagnostics) {
	o := load.Options{Path: path, Vars: f.vars, VarFiles: f.varFiles, RunsPrograms: true,
		WorkloadObjects: workload.ObjectsOf}
	configuration, diags := r.Load(o, before)
	broken := diags.HasErrors()
	if diags = r.UnexpectedDiagnostics(diags); broken || len(diags) > 0 {
		return configuration, diags
	}
	wrong := func(err error) hcl.Diagnostics {
		return hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "Run " + r.Name, Detail: err.Error()}}
	}
	if len(configuration.Cluster.Deferred) > 0 {
		return configuration, wrong(fmt.Errorf(
			"%v cannot be worked out: say with override_data what the cluster would give",
			configuration.Cluster.Deferred))
	}
	p, err := stage.Run(ctx, configuration.Cluster, r.IsApply)
	if err != nil {
		return configuration, wrong(err)
	}
	planned, err := planValue(p)
	if err != nil {
		return configuration, wrong(err)
	}
	diags = r.CheckAsserts(configuration, planned, before)
	before[r.Name] = configuration.Outputs
	return configuration, diags
}

// planValue returns the value of a plan in assertions.
func planValue(p *plan.Plan) (cty.Value, error) {
	machines, objects := map[string]string{}, map[string]string{}
	for _, m := range p.Machines {
		machines[m.Address] = m.Action
	}
	for _, o := range p.Objects {
		objects[o.Kind+" "+o.Name] = o.Action
	}
	text, err := json.Marshal(
		map[string]any{
			"machines": machines,
			"objects":  objects,
			"empty":    p.IsEmpty() && !p.IsPending,
			"pending":  p.IsPending,
		},
	)
	if err != nil {
		return cty.DynamicVal, err
	}
	return data.JSON(text)
}
