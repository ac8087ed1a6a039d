package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"clusterctl/hcl/load"
	"clusterctl/provision/workload"
)

// configFlags are the flags of every command that reads a configuration.
type configFlags struct {
	vars     []string
	varFiles []string
	noColor  bool
	stateDir string
	now      time.Time // time of the run, or of the saved plan that is applied
	json     bool      // report diagnostics as JSON
	reported bool      // diagnostics were reported
}

func (f *configFlags) add(c *cobra.Command) {
	c.Flags().StringArrayVar(&f.vars, "var", nil, "set a variable: `name=value`")
	c.Flags().StringArrayVar(&f.varFiles, "var-file", nil, "take variables from a `file`")
	c.Flags().BoolVar(&f.noColor, "no-color", os.Getenv("NO_COLOR") != "", "plain text")
}

// load loads the configuration that args name (a directory or file, by default the current directory), including data
// from programs and from the cluster. It prints diagnostics.
func (f *configFlags) load(c *cobra.Command, args []string) (*load.Configuration, error) {
	return f.loadWith(c, args, true)
}

// loadOffline loads a configuration without running programs or asking the cluster. Values from them are unknown.
func (f *configFlags) loadOffline(c *cobra.Command, args []string) (*load.Configuration, error) {
	return f.loadWith(c, args, false)
}

func (f *configFlags) loadWith(c *cobra.Command, args []string, all bool) (*load.Configuration, error) {
	if f.now.IsZero() {
		f.now = time.Now()
	}
	o := load.Options{Vars: f.vars, VarFiles: f.varFiles, Environ: os.Environ(), RunsPrograms: all, Now: f.now,
		WorkloadObjects: workload.ObjectsOf}
	if len(args) > 0 {
		o.Path = args[0]
	}
	// Loading allocates much that lives until it ends. Fewer garbage collections save a third of its time. The rest of
	// the run takes longer and uses the normal setting, to keep memory use low.
	previous := debug.SetGCPercent(400)
	defer debug.SetGCPercent(previous)
	configuration, diags := load.Load(o)
	for range maxRounds {
		if !all || diags.HasErrors() || len(configuration.NeededObjects) == 0 {
			break
		}
		if err := f.readObjects(c.Context(), configuration, &o); err != nil {
			return nil, err
		}
		configuration, diags = load.Load(o)
	}
	if err := f.printDiagnostics(c, configuration, diags); err != nil {
		return nil, err
	}
	if diags.HasErrors() {
		return nil, exitCode(1)
	}
	if list := configuration.Cluster.Deferred; all && len(list) > 0 {
		return nil, fmt.Errorf("%s cannot be worked out: what it refers to is still unknown", strings.Join(list, ", "))
	}
	return configuration, nil
}

// maxRounds is how often objects are read from the cluster, since some of them may determine which others are needed.
const maxRounds = 8

// readObjects reads the objects of the cluster that a configuration uses as data.
func (f *configFlags) readObjects(ctx context.Context, c *load.Configuration, o *load.Options) error {
	if o.LiveObjects == nil {
		o.LiveObjects = map[load.LiveObject]map[string]any{}
	}
	store, err := (&runFlags{configFlags: *f}).store(c)
	if err != nil {
		return err
	}
	s, err := store.Read()
	if err != nil {
		return err
	}
	for _, wanted := range c.NeededObjects {
		o.LiveObjects[wanted] = nil // without a cluster no object exists
		if s == nil {
			continue
		}
		live, err := connectAPI(s, c.Cluster)
		if err != nil {
			return err
		}
		object, err := live.Read(ctx, wanted.APIVersion, wanted.Kind, wanted.Namespace, wanted.Name)
		if err != nil {
			return fmt.Errorf("data \"object\": %w", err)
		}
		o.LiveObjects[wanted] = object
	}
	return nil
}

// printDiagnostics prints the diagnostics of a configuration, as one line of JSON with -json.
func (f *configFlags) printDiagnostics(c *cobra.Command, configuration *load.Configuration,
	diags hcl.Diagnostics) error {
	if !f.json {
		return printDiagnostics(c, configuration, diags, f.noColor)
	}
	if len(diags) == 0 {
		return nil
	}
	f.reported = true
	return f.report(c, configuration, diags)
}

func (f *configFlags) report(c *cobra.Command, configuration *load.Configuration, diags hcl.Diagnostics) error {
	text, err := json.Marshal(configuration.Report(diags))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(c.OutOrStdout(), string(text))
	return err
}

// printDiagnostics prints diagnostics with their source lines.
func printDiagnostics(c *cobra.Command, configuration *load.Configuration, diags hcl.Diagnostics, noColor bool) error {
	if len(diags) == 0 {
		return nil
	}
	width, color := 0, false
	if term.IsTerminal(int(os.Stderr.Fd())) {
		color = !noColor
		if w, _, err := term.GetSize(int(os.Stderr.Fd())); err == nil {
			width = w
		}
	}
	return configuration.Print(c.ErrOrStderr(), diags, uint(max(width, 0)), color)
}
