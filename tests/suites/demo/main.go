// Command demo shows what clusterctl is for on this host: three machines that have only Linux, systemd and sshd become
// a cluster with a workload that answers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"clusterctl/tests/lab/cluster"
	"clusterctl/tests/lab/machines"
	"clusterctl/tests/lab/verb"
)

const usage = `Usage: demo [-name NAME] COMMAND

  up                    make three machines a cluster with a workload
  down                  end them and remove all traces
  try                   print commands to try
  exec COMMAND [ARG…]   run a command of this host in the machines' network and the configuration's folder
  get PATH              print objects of the API as a table: /api/v1/nodes
` + verb.Usage

func main() {
	name := flag.String("name", "demo", "name of the demo; demos of different names never meet")
	flag.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	verb.Exit("demo", runCommand(ctx, *name, flag.Args()))
}

func runCommand(ctx context.Context, name string, args []string) error {
	if len(args) == 0 {
		flag.Usage()
		return errors.New("say what to do")
	}
	switch args[0] {
	case "up":
		return startCluster(ctx, name)
	case "down":
		return deleteLab(ctx, name)
	}
	c, err := cluster.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return errors.New("it is not up: run make demo")
	} else if err != nil {
		return err
	}
	switch args[0] {
	case "try":
		return printCommands(os.Stdout, c)
	case "exec":
		if len(args) == 1 {
			return errors.New("exec: say which command")
		}
		return verb.Attach(c.Command(ctx, args[1], args[2:]...))
	case "get":
		if len(args) != 2 {
			return errors.New("get: say which path, such as /api/v1/nodes")
		}
		return printTable(ctx, os.Stdout, c, args[1])
	}
	err = verb.Run(ctx, c.Lab, args)
	if errors.Is(err, verb.ErrUnknown) {
		flag.Usage()
	}
	return err
}

func deleteLab(ctx context.Context, name string) error {
	lab, err := machines.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		fmt.Println("nothing is up")
		return nil
	} else if err != nil {
		return err
	}
	if err := lab.Down(ctx); err != nil {
		return err
	}
	fmt.Printf("The demo is gone. Kept for the next time: %s (the machines' root file system); make clean "+
		"removes it.\n", machines.CacheDir)
	return nil
}
