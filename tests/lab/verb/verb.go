// Package verb implements the verbs of the commands lab and demo for the machines of a running lab.
package verb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"clusterctl/tests/lab/machines"
)

// Usage describes the verbs that Run implements.
const Usage = `  list                  names, addresses
  ssh MACHINE [LINE]    a shell, or one command line, as root
  cut MACHINE           take a machine off the network
  heal MACHINE          put it back
  kill MACHINE          cut a machine's power; its disk is kept
  start MACHINE         boot it again
`

// ErrUnknown is returned for a verb that Run does not implement.
var ErrUnknown = errors.New("unknown command")

// Run runs the verb args[0] with the other arguments.
func Run(ctx context.Context, lab *machines.Lab, args []string) error {
	verb, args := args[0], args[1:]
	on := map[string]func(*machines.Machine) error{
		"ssh":   func(m *machines.Machine) error { return Attach(m.SSH(ctx, "root", strings.Join(args[1:], " "))) },
		"cut":   func(m *machines.Machine) error { return m.Disconnect(ctx) },
		"heal":  func(m *machines.Machine) error { return m.Reconnect(ctx) },
		"kill":  func(m *machines.Machine) error { return m.PowerCut(ctx) },
		"start": func(m *machines.Machine) error { return m.Start(ctx) },
	}[verb]
	switch {
	case verb == "list":
		for _, m := range lab.Machines {
			fmt.Println(m.Name, m.Address)
		}
		return nil
	case on == nil:
		return fmt.Errorf("%w %q", ErrUnknown, verb)
	case len(args) == 0:
		return fmt.Errorf("%s: name a machine", verb)
	}
	m := lab.Machine(args[0])
	if m == nil {
		return fmt.Errorf("%s: lab %s has no machine %q", verb, lab.Name, args[0])
	}
	return on(m)
}

// Attach runs a command with the standard input and outputs of this process.
func Attach(cmd *exec.Cmd) error {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}

// Exit ends the process after a command: with the exit status of a program that it ran, or with status 1 and a message
// on stderr.
func Exit(program string, err error) {
	var status *exec.ExitError
	switch {
	case err == nil:
		os.Exit(0)
	case errors.As(err, &status):
		os.Exit(status.ExitCode())
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", program, err)
	os.Exit(1)
}
