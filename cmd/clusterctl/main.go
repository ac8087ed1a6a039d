// Command clusterctl turns machines into a cluster and keeps it as declared. It is the tool on a workstation, the agent
// on a machine during provisioning, and every daemon. This package wires them together: one file per command.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"clusterctl/daemons/version"
	"clusterctl/hcl/config"
	"clusterctl/provision/run"
)

// init locks main to the process's first thread until a daemon has set its timer slack, which is a property of a
// thread.
func init() { runtime.LockOSThread() }

func main() {
	root := linked(os.Args[0])
	if root != nil || len(os.Args) > 1 && os.Args[1] == "daemon" {
		slacken()
	}
	runtime.UnlockOSThread()
	// Install the handler only here: a signal before this point ends the process. A signal caught before the process
	// executes itself again would be lost.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if root == nil {
		root = newRoot()
		root.SetArgs(long(root, os.Args[1:]))
		offerAsWritten(root, os.Args)
	}
	code := execute(ctx, root)
	stop()
	os.Exit(code)
}

// execute runs a command, prints its error to stderr, and returns the exit code.
func execute(ctx context.Context, root *cobra.Command) int {
	err := root.ExecuteContext(ctx)
	var code exitCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	case errors.Is(err, run.ErrInterrupted):
		err = run.ErrInterrupted // the interruption is reported once, without other errors
	}
	fmt.Fprintln(root.ErrOrStderr(), "Error:", config.Plain(err.Error()))
	return 1
}

// exitCode is an exit code whose reason has been reported already.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// newRoot returns the root command with all subcommands.
func newRoot() *cobra.Command {
	var showVersion bool
	root := &cobra.Command{
		Use:   "clusterctl",
		Short: "From machines with Linux and sshd to a running Kubernetes cluster, declared in one folder",
		Args:  cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if showVersion {
				fmt.Fprintln(c.OutOrStdout(), release())
				return nil
			}
			return needsSubcommand(c, args)
		},
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	// Cobra's own version flag needs a template to change its text, and text/template makes the program a third larger.
	root.Flags().BoolVarP(&showVersion, "version", "v", false, "version for clusterctl")
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return seeHelp(c, err) })
	root.AddCommand(
		newValidate(),
		newGet(),
		newTest(),
		newLSP(),
		newFmt(),
		newConsole(),
		newPlan(),
		newApply(),
		newDestroy(),
		newShow(),
		newGraph(),
		newOutput(),
		newKubeconfig(),
		newSSH(),
		newStatus(),
		newDebug(),
		newCerts(),
		newToken(),
		newStateCommand(),
		newEtcd(),
		newVersion(),
		newMan(),
		newPack(),
		newDaemon(),
		newDev(),
		newAgent(),
	)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch {
		case c.Name() == "help":
			c.Run, c.RunE = nil, help
		case c.HasSubCommands():
			c.Args, c.RunE = cobra.ArbitraryArgs, needsSubcommand
		}
		pointToHelp(c)
	}
	return root
}

// pointToHelp makes a command and all its subcommands refer to their help when the number of arguments is wrong.
func pointToHelp(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return seeHelp(c, err)
			}
			return nil
		}
	}
	for _, below := range c.Commands() {
		pointToHelp(below)
	}
}

// release returns the text that version and --version print.
func release() string {
	return fmt.Sprintf("clusterctl %s, Kubernetes %s", version.Version, version.Kubernetes)
}

// needsSubcommand runs a command that only groups others. It shows the help, or returns an error for an unknown word.
// Cobra would show the help and exit with 0, so a script with a misspelt word would seem to succeed.
func needsSubcommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	return unknown(c, args[0])
}

// help shows the help of the command that args name.
func help(c *cobra.Command, args []string) error {
	found, rest, err := c.Root().Find(args)
	if err != nil || len(rest) > 0 && found.HasSubCommands() {
		if len(rest) == 0 {
			rest = args
		}
		return unknown(cmp.Or(found, c.Root()), rest[0])
	}
	found.InitDefaultHelpFlag()
	return found.Help()
}

// unknown returns an error for a word that is not a subcommand of c, with suggestions.
func unknown(c *cobra.Command, word string) error {
	c.SuggestionsMinimumDistance = 2
	text := fmt.Sprintf("unknown command %q for %q", word, c.CommandPath())
	if like := c.SuggestionsFor(word); len(like) > 0 {
		text += fmt.Sprintf(". Did you mean %s?", strings.Join(like, " or "))
	}
	return seeHelp(c, errors.New(text))
}

// seeHelp adds a reference to the command's help to an error.
func seeHelp(c *cobra.Command, err error) error {
	return fmt.Errorf("%w\nSee '%s --help'", err, c.CommandPath())
}
