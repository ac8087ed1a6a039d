// Command lab starts real machines on this host, causes faults and deletes the machines:
//
//	go run ./tests/lab up 3          # machines m1, m2, m3 at 10.99.0.11 and following
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
	"os/signal"
	"strconv"

	"clusterctl/tests/lab/machines"
	"clusterctl/tests/lab/verb"
)

const usage = `Usage: lab [-name NAME] COMMAND

  up [N | NAME…]        make and boot N machines (m1, m2, …), or those named; NAME=ADDRESS chooses the address
  down                  end them and remove all traces
  exec COMMAND [ARG…]   run a command of this host in the lab's network
  home                  a home directory whose .ssh reaches the machines: HOME=$(lab home) lab exec clusterctl …
` + verb.Usage

func main() {
	name := flag.String("name", "lab", "name of the lab; labs of different names never meet")
	flag.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	verb.Exit("lab", runCommand(ctx, *name, flag.Args()))
}

func runCommand(ctx context.Context, name string, args []string) error {
	if len(args) == 0 {
		flag.Usage()
		return errors.New("say what to do")
	}
	if args[0] == "up" {
		_, err := machines.StartMachines(ctx,
			machines.Options{Name: name, Machines: machineNames(args[1:]), Log: os.Stderr})
		return err
	}
	lab, err := machines.Open(name)
	if err != nil {
		return err
	}
	switch args[0] {
	case "down":
		return lab.Down(ctx)
	case "home":
		fmt.Println(lab.Home())
		return nil
	case "exec":
		if len(args) == 1 {
			return errors.New("exec: say which command")
		}
		return verb.Attach(lab.Command(ctx, args[1], args[2:]...))
	}
	err = verb.Run(ctx, lab, args)
	if errors.Is(err, verb.ErrUnknown) {
		flag.Usage()
	}
	return err
}

func machineNames(args []string) []string {
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
