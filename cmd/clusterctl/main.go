// Command clusterctl turns machines into a cluster and keeps it as declared. It is
// the tool on a workstation, the agent on a machine while that is provisioned,
// and every daemon. This package is wiring: one file per verb.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"clusterctl/provision/run"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	root := linked(os.Args[0])
	if root != nil || len(os.Args) > 1 && os.Args[1] == "daemon" {
		slacken()
	}
	if root == nil {
		root = newRoot()
		root.SetArgs(long(os.Args[1:]))
	}
	code := execute(ctx, root)
	stop()
	os.Exit(code)
}

// execute runs a command and returns the exit code: what went wrong is on stderr.
func execute(ctx context.Context, root *cobra.Command) int {
	err := root.ExecuteContext(ctx)
	var code exitCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	case errors.Is(err, run.ErrInterrupted):
		err = run.ErrInterrupted // said once, whatever was told along the way
	}
	fmt.Fprintln(root.ErrOrStderr(), "Error:", err)
	return 1
}

// exitCode is an outcome that has been said already.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// newRoot returns the command with all its verbs.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "clusterctl",
		Short:         "From machines with Linux and sshd to a running Kubernetes cluster, declared in one folder",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(
		newValidate(),
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
		newVersion(),
		newDaemon(),
		newDev(),
		newAgent(),
	)
	return root
}
