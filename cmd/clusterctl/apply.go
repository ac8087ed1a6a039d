package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"clusterctl/hcl/config"
	"clusterctl/hcl/load"
	"clusterctl/provision/plan"
	"clusterctl/provision/run"
	"clusterctl/provision/run/report"
	"clusterctl/provision/state"
)

func newApply() *cobra.Command   { return applyCommand(false) }
func newDestroy() *cobra.Command { return applyCommand(true) }

func applyCommand(destroy bool) *cobra.Command {
	var flags runFlags
	var approve bool
	c := &cobra.Command{
		Use:   "apply [FOLDER|FILE|PLAN]",
		Short: "Change machines and workloads until they are as declared",
		Args:  cobra.MaximumNArgs(1),
	}
	if destroy {
		c.Use, c.Short = "destroy [FOLDER|FILE]", "Remove the cluster and clean its machines"
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		saved, err := readSaved(args)
		if err != nil {
			return err
		}
		if saved != nil {
			if err := rejectPlanFlags(c, args[0]); err != nil {
				return err
			}
			args, destroy = nil, saved.Destroy
			if saved.Path != "" {
				args = []string{saved.Path}
			}
			flags.now = saved.Time
			flags.vars, flags.varFiles, flags.targets, flags.excludes = saved.Vars, saved.VarFiles, saved.Targets,
				saved.Excludes
			flags.replaces, flags.refreshOnly, flags.losses = saved.Replaces, saved.Refresh, append(flags.losses,
				saved.Losses...)
			flags.downgrade = cmp.Or(flags.downgrade, saved.Downgrade)
		}
		configuration, err := flags.load(c, args)
		if err != nil {
			return err
		}
		return flags.apply(c, configuration, destroy, approve, saved)
	}
	flags.add(c)
	if !destroy {
		flags.addChanges(c)
		c.Flags().
			BoolVar(&flags.noSnapshot, "no-snapshot", false, "take no snapshot of the store before a risky change, "+
				"when none can be taken")
	}
	c.Flags().BoolVar(&approve, "auto-approve", false, "do not ask")
	return c
}

// rejectPlanFlags refuses flags that would change the meaning of a saved plan.
func rejectPlanFlags(c *cobra.Command, path string) error {
	if c.Name() != "apply" {
		return fmt.Errorf("%s is a saved plan, which clusterctl apply takes; one that takes everything away is made "+
			"with plan -destroy -out", path)
	}
	for _, flag := range []string{"var", "var-file", "target", "exclude", "replace", "refresh-only"} {
		if c.Flags().Changed(flag) {
			return fmt.Errorf("-%s: %s is a saved plan, which is applied as it was shown: leave the flag out, or give "+
				"it to clusterctl plan -out and apply that", flag, path)
		}
	}
	return nil
}

// apply plans, asks for approval and applies, under the lock. With -json, the last line is the result.
func (f *runFlags) apply(
	c *cobra.Command,
	configuration *load.Configuration,
	destroy, approve bool,
	saved *plan.Saved,
) error {
	err := f.applyLocked(c, configuration, destroy, approve, saved)
	if !f.json {
		return err
	}
	return writeResult(c.OutOrStdout(), err, configuration.Cluster.Secrets, nil)
}

// applyLocked does what apply describes, under the lock.
func (f *runFlags) applyLocked(
	c *cobra.Command,
	configuration *load.Configuration,
	destroy, approve bool,
	saved *plan.Saved,
) error {
	store, err := f.lockedStore(c.Context(), configuration)
	if err != nil {
		return err
	}
	defer f.unlock()
	ctx, cancel := cancelOnLostLock(c.Context(), f.heldLock)
	defer cancel(nil)
	a := &applying{
		flags: f, command: c, configuration: configuration, store: store, destroy: destroy,
		start:    time.Now(),
		progress: newProgress(c.OutOrStdout(), f.json, configuration.Cluster.Secrets),
		journal:  &runJournal{secrets: configuration.Cluster.Secrets},
	}
	if f.heldLock.TookOverFrom != "" {
		a.note("the lock of " + f.heldLock.TookOverFrom + " was taken over: that process is dead")
	}
	prepared, err := f.prepare(ctx, configuration, destroy, false, a.report)
	if err != nil {
		return lockLost(ctx, err)
	}
	defer prepared.Close()
	if saved != nil {
		if err := saved.Check(prepared.State.Serial, prepared.Plan); err != nil {
			return err
		}
	}
	a.progress.setSecrets(prepared.Secrets)
	a.journal.secrets = prepared.Secrets
	unfinished, err := a.journal.describePrevious(store)
	if err != nil {
		return err
	}
	if prepared.Plan.IsEmpty() && !prepared.Plan.IsPending {
		return a.applyNothing(ctx, prepared, unfinished != "")
	}
	if unfinished != "" {
		a.note(unfinished)
	}
	if err := f.printPlan(c.OutOrStdout(), prepared.Secrets, prepared.Plan); err != nil {
		return err
	}
	if saved == nil && !approve {
		if err := askApproval(ctx, c.OutOrStdout(), os.Stdin, destroy); err != nil {
			return err
		}
	}
	return a.applyPlan(ctx, prepared)
}

// applying is an apply in progress.
type applying struct {
	flags         *runFlags
	command       *cobra.Command
	configuration *load.Configuration
	store         state.Store
	destroy       bool
	start         time.Time
	progress      *progressPrinter
	journal       *runJournal
}

// report records and prints an event.
func (a *applying) report(e report.Event) {
	a.journal.record(e)
	a.progress.print(e)
}

// note reports a message.
func (a *applying) note(message string) {
	a.report(report.Event{Kind: report.Note, Time: time.Now(), Message: message})
}

// applyNothing applies a plan without changes. It ends the record of an unfinished run.
func (a *applying) applyNothing(ctx context.Context, prepared *run.Prepared, wasUnfinished bool) error {
	if err := a.flags.printPlan(a.command.OutOrStdout(), prepared.Secrets, prepared.Plan); err != nil {
		return err
	}
	if err := prepared.Apply(ctx); err != nil {
		return err
	}
	if !a.destroy {
		warnWithoutAPI(ctx, prepared, a.report)
	}
	if wasUnfinished {
		if err := state.RecordFinished(a.store.Dir, time.Now()); err != nil {
			return err
		}
	}
	return a.flags.outputs(a.command, a.configuration)
}

// applyPlan applies an approved plan, with a journal.
func (a *applying) applyPlan(ctx context.Context, prepared *run.Prepared) error {
	if err := a.journal.begin(a.store, prepared.Plan); err != nil {
		return err
	}
	out := a.command.OutOrStdout()
	if !a.flags.json {
		if a.progress.live = newLiveBlock(out, !a.flags.noColor); a.progress.live != nil {
			a.progress.live.show(prepared.Plan)
		}
	}
	err := lockLost(ctx, prepared.Apply(ctx))
	a.progress.live.remove()
	journalErr := a.journal.close(err)
	if err != nil {
		return fmt.Errorf("%w\n\nWhat was done stays; run again to go on from there", err)
	}
	if !a.flags.json {
		fmt.Fprintf(out, "\n%s in %.1f s.\n", doneMessage(prepared.Plan, a.destroy), time.Since(a.start).Seconds())
	}
	if journalErr != nil || a.destroy {
		return journalErr
	}
	warnWithoutAPI(ctx, prepared, a.report)
	return a.flags.outputs(a.command, a.configuration)
}

// warnWithoutAPI reports the machines that cannot reach an API server. Their configuration was applied, but their nodes
// will not become ready.
func warnWithoutAPI(ctx context.Context, p *run.Prepared, notify func(report.Event)) {
	found := p.WithoutAPI(ctx)
	for _, address := range slices.Sorted(maps.Keys(found)) {
		notify(report.Event{Kind: report.Note, Time: time.Now(), Machine: address,
			Message: fmt.Sprintf("%s cannot reach an API server, so its node will not become ready: %s", address,
				found[address])})
	}
}

func doneMessage(p *plan.Plan, destroy bool) string {
	if destroy {
		return "Destroyed"
	}
	var parts []string
	for _, a := range []struct{ action, word string }{{plan.Create, "created"}, {plan.Change, "changed"},
		{plan.Remove, "removed"}, {plan.Replace, "replaced"}, {plan.Move, "moved"}, {plan.Forget, "forgotten"}} {
		machines, objects := p.Count(a.action)
		var what []string
		if machines > 0 {
			what = append(what, plan.Number(machines, "machine"))
		}
		if objects > 0 {
			what = append(what, plan.Number(objects, "object"))
		}
		if len(what) > 0 {
			parts = append(parts, strings.Join(what, " and ")+" "+a.word)
		}
	}
	if len(p.Moves) > 0 {
		parts = append(parts, fmt.Sprintf("%s of the replacement of authorities and keys completed, which changed %s",
			plan.Number(len(p.Moves), "move"), plan.Number(len(p.Moved), "machine")))
	}
	if len(parts) == 0 {
		return "Applied: nothing had to be changed"
	}
	return "Applied: " + strings.Join(parts, ", ")
}

// cancelOnLostLock returns a context that is cancelled when the lock is lost.
func cancelOnLostLock(ctx context.Context, lock *state.Lock) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-lock.Lost():
			cancel(state.ErrLost)
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// lockLost returns state.ErrLost if the run was stopped because it lost the lock, otherwise err.
func lockLost(ctx context.Context, err error) error {
	if errors.Is(err, state.ErrLost) || err != nil && errors.Is(context.Cause(ctx), state.ErrLost) {
		return state.ErrLost
	}
	return err
}

// readSaved reads args[0] as a saved plan. It returns nil if args[0] is a configuration.
func readSaved(args []string) (*plan.Saved, error) {
	if len(args) == 0 {
		return nil, nil
	}
	info, err := os.Stat(args[0])
	if err != nil || info.IsDir() || strings.HasSuffix(args[0], load.Extension) ||
		strings.HasSuffix(args[0], load.JSONExtension) {
		return nil, nil
	}
	text, err := os.ReadFile(args[0])
	if err != nil {
		return nil, err
	}
	var saved plan.Saved
	if err := json.Unmarshal(text, &saved); err != nil || saved.Plan == nil {
		return nil, fmt.Errorf("%s is neither a configuration (a folder or a %s file) nor a saved plan", args[0],
			load.Extension)
	}
	return &saved, nil
}

func maskSecrets(text string, secrets []string) string { return config.Mask(text, secrets) }
