// Command chaos causes faults in a cluster of six machines, and checks everything that the cluster does meanwhile:
//
//	go run ./tests/suites/chaos run -seed 7 -minutes 3     # starts a lab, causes random faults, deletes the lab
//	go run ./tests/suites/chaos up                         # starts a lab of examples/ha that remains
//	go run ./tests/suites/chaos kill n1 kubelet            # one fault; the usage text lists all kinds
//	go run ./tests/suites/chaos rollout                    # 50 Deployments while leaders are killed
//	go run ./tests/suites/chaos moving                     # a zone cut off, then all nodes
//	go run ./tests/suites/chaos down
//	go run ./tests/suites/chaos api -seed 7 -minutes 10    # only etcd and API servers, as processes of this machine
//
// The same seed gives the same list of faults. It prints a verdict at the end, and exits with status 1 if it found a
// violation.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"clusterctl/tests/lab/cluster"
	"clusterctl/tests/lab/machines"
	"clusterctl/tests/suites/chaos/fault"
)

const usage = `Usage: chaos [-name NAME] COMMAND

  run [-seed N] [-minutes M] [-faults LIST | -each kill|stop]   bring a lab up, break it at random or as listed, say what was found, take it down
  up                                          bring a lab up and leave it
  again [-seed N] [-minutes M] [-faults LIST] as run, on a lab that is up, which stays
  api [-seed N] [-minutes M]                  three members of the store and three API servers on this machine, without a lab
  rollout                                     50 Deployments on a lab that is up, while the scheduler's and the controllers' leaders are killed every 5 s
  minority                                    what one of three control-plane machines says while the others are off
  moving [-usual]                             a zone's only node is cut off until its pods have moved, then all nodes, whose pods must stay;
                                              with the tolerations that pods usually have it takes six minutes each
  FAULT MACHINE[,…] [UNIT] [DURATION]         one fault on a lab that is up: kill, stop, power, cut, slow, fill, leader, expire, lose
  down                                        take the lab down

LIST is of faults as a run prints them, with semicolons between.
`

func main() {
	name := flag.String("name", fmt.Sprintf("chaos-%d", os.Getpid()), "name of the lab")
	flag.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := runCommand(ctx, *name, flag.Args()); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) { // otherwise another process of this program has printed the error
			fmt.Fprintln(os.Stderr, "chaos:", err)
		}
		os.Exit(1)
	}
}

// errFound is the error of a run that found a violation.
var errFound = errors.New("something was found")

func runCommand(ctx context.Context, name string, args []string) error {
	if len(args) == 0 {
		flag.Usage()
		return errors.New("say what to do")
	}
	verb, args := args[0], args[1:]
	switch verb {
	case "run", "again", "inside":
		o, err := parseOptions(verb, args)
		if err != nil {
			return err
		}
		switch verb {
		case "inside":
			return runOnCluster(ctx, name, o)
		case "again":
			return runInNetwork(ctx, name, "inside", args...)
		}
		fmt.Printf("chaos: seed %d, %s\n", o.seed, o.duration)
		defer func() { _ = stopCluster(name) }()
		if _, err := startCluster(ctx, name); err != nil {
			return err
		}
		return runInNetwork(ctx, name, "inside", append([]string{"-seed", fmt.Sprint(o.seed)}, args...)...)
	case "api":
		o, err := parseOptions(verb, args)
		if err != nil {
			return err
		}
		return breakPlane(ctx, o)
	case "rollout":
		return runInNetwork(ctx, name, "rolling")
	case "rolling":
		return testRollout(ctx, name)
	case "minority":
		return runInNetwork(ctx, name, "alone")
	case "alone":
		return testMinority(ctx, name)
	case "moving":
		return runInNetwork(ctx, name, "cutting", args...)
	case "cutting":
		set := flag.NewFlagSet(verb, flag.ContinueOnError)
		long := set.Bool("usual", false, "with the tolerations that pods usually have: six minutes")
		if err := set.Parse(args); err != nil {
			return err
		}
		if *long {
			return testMoving(ctx, name, defaultTiming)
		}
		return testMoving(ctx, name, shortTiming)
	case "up":
		_, err := startCluster(ctx, name)
		return err
	case "down":
		return stopCluster(name)
	}
	f, err := parseFault(append([]string{verb}, args...))
	if err != nil {
		return err
	}
	c, err := cluster.Open(name)
	if err != nil {
		return err
	}
	return f.Run(ctx, c.Lab, newRepair(c))
}

// newRepair applies the configuration, as an administrator does to repair what the cluster does not repair by itself.
func newRepair(c *cluster.Cluster) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := cluster.Output(c.Clusterctl(ctx, "apply", "--auto-approve"))
		return err
	}
}

// options are the options of a run.
type options struct {
	seed     uint64
	duration time.Duration
	faults   []fault.Fault // instead of the faults of the seed
}

func parseOptions(verb string, args []string) (options, error) {
	var o options
	set := flag.NewFlagSet(verb, flag.ContinueOnError)
	set.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()%1_000_000), "what the faults are drawn by")
	minutes := set.Float64("minutes", 3, "how long to go on breaking")
	list := set.String("faults", "", "faults to do instead, with semicolons between")
	each := set.String("each", "", "kill, or stop for a minute, every daemon on every machine in turn instead")
	if err := set.Parse(args); err != nil {
		return o, err
	}
	switch fault.Kind(*each) {
	case "":
	case fault.Kill:
		o.faults = fault.FaultsOfAllUnits(fault.Kill, machineNames, 0)
	case fault.Stop:
		o.faults = fault.FaultsOfAllUnits(fault.Stop, machineNames, time.Minute)
	default:
		return o, fmt.Errorf("each: kill or stop, not %q", *each)
	}
	o.duration = time.Duration(*minutes * float64(time.Minute))
	for _, text := range strings.Split(*list, ";") {
		if words := strings.Fields(text); len(words) > 0 {
			f, err := parseFault(words)
			if err != nil {
				return o, err
			}
			o.faults = append(o.faults, f)
		}
	}
	return o, nil
}

// parseFault parses the format of Fault.String.
func parseFault(words []string) (fault.Fault, error) {
	f := fault.Fault{Kind: fault.Kind(words[0])}
	for _, w := range words[1:] {
		d, err := time.ParseDuration(w)
		switch {
		case w == "for":
		case err == nil:
			f.Duration = d
		case f.Machines == nil:
			f.Machines = strings.Split(w, ",")
		default:
			f.Unit = w
		}
	}
	switch f.Kind {
	case fault.Kill, fault.Stop, fault.Power, fault.Cut, fault.Slow, fault.Fill, fault.Leader, fault.Expire, fault.Lose:
		if f.Machines == nil || f.Kind.IsOfUnit() != (f.Unit != "") {
			return f, fmt.Errorf("%s: say which machine and, for kill, stop and expire alone, which unit", f.Kind)
		}
		return f, nil
	}
	return f, fmt.Errorf("no command or fault is called %q", f.Kind)
}

// runInNetwork runs this program in the lab's network, so that the checkers' connections take the same paths as those
// of the daemons.
func runInNetwork(ctx context.Context, name, verb string, args ...string) error {
	c, err := cluster.Open(name)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := c.Lab.Command(ctx, self, append([]string{"-name", name, verb}, args...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Minute // the process undoes its fault before it ends
	return cmd.Run()
}

func stopCluster(name string) error {
	lab, err := machines.Open(name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	return lab.Down(ctx)
}
