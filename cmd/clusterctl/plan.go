package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"clusterctl/hcl/config"
	"clusterctl/hcl/load"
	"clusterctl/provision/plan"
	"clusterctl/provision/run"
	"clusterctl/provision/run/report"
	"clusterctl/provision/workload"
)

func newPlan() *cobra.Command {
	var flags runFlags
	var out, page string
	var destroy, detailed bool
	c := &cobra.Command{
		Use:   "plan [FOLDER|FILE]",
		Short: "Show what apply would do, and change nothing",
		Long: `Show what apply would do, and change nothing. With -html it is a page as well, for a browser or a reviewer: what happens in which
order, and each change.

  clusterctl plan -html plan.html`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := errors.Join(rejectConfigurationName("out", out, "plan"),
				rejectConfigurationName("html", page, "html")); err != nil {
				return err
			}
			if out != "" && out == page {
				return fmt.Errorf(
					"-out and -html both name %s: the page would take the place of the plan that apply takes", out)
			}
			configuration, err := flags.load(c, args)
			if err != nil {
				return err
			}
			// Report slow steps on stderr from the start, so that stdout has only the plan.
			doing := newProgress(c.ErrOrStderr(), flags.json, configuration.Cluster.Secrets)
			prepared, err := flags.prepare(c.Context(), configuration, destroy, true, doing.print)
			if err != nil {
				return err
			}
			defer prepared.Close()
			if err := flags.printPlan(c.OutOrStdout(), prepared.Secrets, prepared.Plan); err != nil {
				return err
			}
			if page != "" {
				var text bytes.Buffer
				err := prepared.Plan.Page(&text, prepared.Secrets)
				if err == nil {
					err = writePrivate(page, text.Bytes())
				}
				if err != nil {
					return fmt.Errorf("write the plan as a page: %w", err)
				}
			}
			if err := prepared.Unreached(); err != nil {
				return err
			}
			if out != "" {
				if err := flags.savePlan(out, args, destroy, prepared); err != nil {
					return err
				}
			}
			if err := prepared.Skipped(); err != nil {
				return err
			}
			if detailed && (!prepared.Plan.IsEmpty() || prepared.Plan.IsPending) {
				return exitCode(2)
			}
			return nil
		},
	}
	flags.add(c)
	flags.addChanges(c)
	c.Flags().StringVar(&out, "out", "", "save the plan in a `file` that apply takes")
	c.Flags().StringVar(&page, "html", "", "write the plan as a page of HTML into this `file` as well")
	c.Flags().BoolVar(&destroy, "destroy", false, "plan to take everything away")
	c.MarkFlagsMutuallyExclusive("destroy", "skip-unreachable")
	c.MarkFlagsMutuallyExclusive("destroy", "refresh-only")
	c.MarkFlagsMutuallyExclusive("destroy", "replace")
	c.Flags().
		BoolVar(&detailed, "detailed-exitcode", false, "exit with 0 when there is nothing to do, 1 on errors, 2 when "+
			"there is")
	return c
}

// prepare connects to the machines and makes a plan. With look, it makes a plan even if some
// machines or the API cannot be reached.
func (f *runFlags) prepare(
	ctx context.Context,
	c *load.Configuration,
	destroy, look bool,
	notify func(report.Event),
) (*run.Prepared, error) {
	if _, err := workload.Objects(c.Cluster); err != nil {
		return nil, err
	}
	engine, err := f.engine(c, notify)
	if err != nil {
		return nil, err
	}
	engine.IsDestroy, engine.IsPlanOnly = destroy, look
	return engine.Prepare(ctx)
}

// printPlan prints a plan as text or JSON.
func (f *runFlags) printPlan(w io.Writer, secrets []string, p *plan.Plan) error {
	if f.json {
		text, err := json.Marshal(p.WithoutSecrets(secrets))
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(w, config.MaskJSON(string(text), secrets))
		return err
	}
	color := false
	if file, ok := w.(*os.File); ok {
		color = !f.noColor && term.IsTerminal(int(file.Fd()))
	}
	return p.Print(w, plan.Style{Color: color, Secrets: secrets})
}

func (f *runFlags) savePlan(path string, args []string, destroy bool, p *run.Prepared) error {
	for _, v := range f.vars {
		if name, value, _ := strings.Cut(v, "="); config.HasSecret(value, p.Secrets) {
			return fmt.Errorf("save the plan: it would hold the sensitive variable %s, which -var gives: give it in a "+
				"file, or as CLUSTERCTL_VAR_%s", name, name)
		}
	}
	excludes := slices.Clone(f.excludes)
	for _, m := range p.Plan.Machines {
		if m.Action == plan.Skipped {
			excludes = append(excludes, m.Address)
		}
	}
	saved := plan.Saved{
		Format: plan.SavedFormat, Time: f.now, Vars: f.vars, VarFiles: f.varFiles, Destroy: destroy,
		Targets: f.targets, Excludes: excludes, Replaces: f.replaces, Refresh: f.refreshOnly, Losses: f.losses,
		Downgrade: f.downgrade, Serial: p.State.Serial, Fingerprint: p.Plan.Fingerprint(),
		Plan: p.Plan.WithoutSecrets(p.Secrets),
	}
	if len(args) > 0 {
		saved.Path = args[0]
	}
	text, err := json.MarshalIndent(saved, "", "  ")
	if err != nil {
		return err
	}
	if err := writePrivate(path, append(text, '\n')); err != nil {
		return fmt.Errorf("save the plan: %w", err)
	}
	return nil
}

// rejectConfigurationName refuses to write other content to a file with the name of a configuration.
func rejectConfigurationName(flag, path, extension string) error {
	for _, own := range []string{load.JSONExtension, load.Extension} {
		if name, ok := strings.CutSuffix(path, own); ok {
			return fmt.Errorf("-%s %s: files named *%s are configurations: call it otherwise, say %s.%s", flag, path,
				own, name, extension)
		}
	}
	return nil
}

// writePrivate atomically replaces a file with one that only its owner can read.
func writePrivate(path string, content []byte) error { return replaceFile(path, content, 0o600) }

// replaceFile atomically replaces a file.
func replaceFile(path string, content []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // created with mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	if _, err = f.Write(content); err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return err
}
