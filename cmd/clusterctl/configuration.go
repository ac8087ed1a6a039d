package main

import (
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"clusterctl/hcl/load"
)

// configFlags are the flags of every verb that reads a configuration.
type configFlags struct {
	vars     []string
	varFiles []string
	noColor  bool
}

func (f *configFlags) add(c *cobra.Command) {
	c.Flags().StringArrayVar(&f.vars, "var", nil, "set a variable: `name=value`")
	c.Flags().StringArrayVar(&f.varFiles, "var-file", nil, "take variables from a `file`")
	c.Flags().BoolVar(&f.noColor, "no-color", os.Getenv("NO_COLOR") != "", "plain text")
}

// load reads the configuration that args name (a folder or file; the current
// folder when none). What is wrong with it is printed.
func (f *configFlags) load(c *cobra.Command, args []string) (*load.Configuration, error) {
	o := load.Options{Vars: f.vars, VarFiles: f.varFiles, Environ: os.Environ()}
	if len(args) > 0 {
		o.Path = args[0]
	}
	configuration, diags := load.Load(o)
	if len(diags) > 0 {
		width := 0
		color := false
		if term.IsTerminal(int(os.Stderr.Fd())) {
			color = !f.noColor
			if w, _, err := term.GetSize(int(os.Stderr.Fd())); err == nil {
				width = w
			}
		}
		if err := configuration.Print(c.ErrOrStderr(), diags, uint(max(width, 0)), color); err != nil {
			return nil, err
		}
	}
	if diags.HasErrors() {
		return nil, exitCode(1)
	}
	return configuration, nil
}
