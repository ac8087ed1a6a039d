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
	"clusterctl/provision/run/session"
)

// init locks main to the process's first thread until a daemon has set its timer slack, which is a property of a
// thread.
func init() { runtime.LockOSThread() }

func main() {
	root := linkedDaemon(os.Args[0])
	if root != nil || len(os.Args) > 1 && os.Args[1] == "daemon" {
		setTimerSlack()
	}
	runtime.UnlockOSThread()
	// Install the handler only here: a signal before this point ends the process. A signal caught before the process
	// executes itself again would be lost.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if root == nil {
		root = newRoot()
		root.SetArgs(toDoubleDash(root, os.Args[1:]))
		keepSingleDash(root, os.Args)
	}
	code := runCommand(ctx, root)
	stop()
	os.Exit(code)
}

// runCommand runs a command, prints its error to stderr, and returns the exit code.
func runCommand(ctx context.Context, root *cobra.Command) int {
	err := root.ExecuteContext(ctx)
	var code exitCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	case errors.Is(err, session.ErrInterrupted):
		err = session.ErrInterrupted // the interruption is reported once, without other errors
	}
	fmt.Fprintln(root.ErrOrStderr(), "Error:", config.EscapeControls(err.Error()))
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
		Short: "Turn machines with Linux and sshd into a Kubernetes cluster, declared in one folder",
		Args:  cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if showVersion {
				fmt.Fprintln(c.OutOrStdout(), releaseText())
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
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return withHelpHint(c, err) })
	root.AddCommand(newValidate(), newGet(), newTest(), newLSP(), newFmt(), newConsole(), newConvert(), newPlan(),
		newApply(), newDestroy(), newShow(), newGraph(), newOutput(), newKubeconfig(), newSSH(), newStatus(),
		newEvents(), newTop(), newTree(), newWhy(), newDashboard(), newDebug(), newCerts(), newToken(), newGitOps(),
		newStateCommand(), newEtcd(), newVersion(), newMan(), newPack(), newDaemon(), newDev(), newAgent())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch {
		case c.Name() == "help":
			c.Run, c.RunE = nil, showHelp
		case c.HasSubCommands():
			c.Args, c.RunE = cobra.ArbitraryArgs, needsSubcommand
		}
		addHelpHints(c)
	}
	return root
}

// addHelpHints makes a command and all its subcommands refer to their help when the number of arguments is wrong.
func addHelpHints(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return withHelpHint(c, err)
			}
			return nil
		}
	}
	for _, below := range c.Commands() {
		addHelpHints(below)
	}
}

// releaseText returns the text that version and --version print.
func releaseText() string {
	return fmt.Sprintf("clusterctl %s, Kubernetes %s", version.Version, version.Kubernetes)
}

// needsSubcommand runs a command that only groups others. It shows the help, or returns an error for an unknown word.
// Cobra would show the help and exit with 0, so a script with a misspelt word would seem to succeed.
func needsSubcommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	return unknownCommand(c, args[0])
}

// showHelp shows the help of the command that args name.
func showHelp(c *cobra.Command, args []string) error {
	found, rest, err := c.Root().Find(args)
	if err != nil || len(rest) > 0 && found.HasSubCommands() {
		if len(rest) == 0 {
			rest = args
		}
		return unknownCommand(cmp.Or(found, c.Root()), rest[0])
	}
	found.InitDefaultHelpFlag()
	return found.Help()
}

// unknownCommand returns an error for a word that is not a subcommand of c, with suggestions.
func unknownCommand(c *cobra.Command, word string) error {
	c.SuggestionsMinimumDistance = 2
	text := fmt.Sprintf("unknown command %q for %q", word, c.CommandPath())
	if like := c.SuggestionsFor(word); len(like) > 0 {
		text += fmt.Sprintf(". Did you mean %s?", strings.Join(like, " or "))
	}
	return withHelpHint(c, errors.New(text))
}

// withHelpHint adds a reference to the command's help to an error.
func withHelpHint(c *cobra.Command, err error) error {
	return fmt.Errorf("%w\nSee '%s --help'", err, c.CommandPath())
}
