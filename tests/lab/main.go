// Command lab brings real machines up on this host, breaks them and takes them down:
//
//	go run ./tests/lab up 3          # machines m1, m2, m3 at 10.99.0.11 and on
//	go run ./tests/lab ssh m1 uptime
//	go run ./tests/lab cut m2; go run ./tests/lab heal m2
//	go run ./tests/lab down
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"

	"clusterctl/tests/lab/machines"
)

const usage = `Usage: lab [-name NAME] COMMAND

  up [N | NAME…]        make and boot N machines (m1, m2, …), or those named; NAME=ADDRESS chooses the address
  down                  end them and remove all traces
  list                  names, addresses
  ssh MACHINE [LINE]    a shell, or one command line, as root
  exec COMMAND [ARG…]   run a command of this host in the lab's network
  home                  a home directory whose .ssh reaches the machines: HOME=$(lab home) lab exec clusterctl …
  cut MACHINE           take a machine off the network
  heal MACHINE          put it back
  kill MACHINE          cut a machine's power; its disk is kept
  start MACHINE         boot it again
`

func main() {
	name := flag.String("name", "lab", "name of the lab; labs of different names never meet")
	flag.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *name, flag.Args()); err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			os.Exit(exit.ExitCode())
		}
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, name string, args []string) error {
	if len(args) == 0 {
		flag.Usage()
		return errors.New("say what to do")
	}
	verb, args := args[0], args[1:]
	if verb == "up" {
		_, err := machines.Up(ctx, machines.Options{Name: name, Machines: names(args), Log: os.Stderr})
		return err
	}
	lab, err := machines.Open(name)
	if err != nil {
		return err
	}
	switch verb {
	case "down":
		return lab.Down(ctx)
	case "list":
		for _, m := range lab.Machines {
			fmt.Println(m.Name, m.Address)
		}
		return nil
	case "home":
		fmt.Println(lab.Home())
		return nil
	case "exec":
		if len(args) == 0 {
			return errors.New("exec: say which command")
		}
		return attach(lab.Command(ctx, args[0], args[1:]...))
	}
	if len(args) == 0 {
		return fmt.Errorf("%s: say which machine", verb)
	}
	m := lab.Machine(args[0])
	if m == nil {
		return fmt.Errorf("%s: lab %s has no machine %q", verb, name, args[0])
	}
	switch verb {
	case "ssh":
		return attach(m.SSH(ctx, "root", strings.Join(args[1:], " ")))
	case "cut":
		return m.Cut(ctx)
	case "heal":
		return m.Heal(ctx)
	case "kill":
		return m.PowerCut(ctx)
	case "start":
		return m.Start(ctx)
	}
	flag.Usage()
	return fmt.Errorf("no command %q", verb)
}

func names(args []string) []string {
	if len(args) == 0 {
		args = []string{"3"}
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return args
	}
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("m%d", i+1))
	}
	return out
}

func attach(cmd *exec.Cmd) error {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}
