// Command runner runs suites of tests, several at a time, and prints a table of what each proved and cost:
//
//	runner check              lint and every test that needs no machines
//	runner test               what CI runs
//	runner all                everything that exists
//	runner -only roll,e2e all chosen suites
//	runner -list all          the suites of a target, without running them
//
// Each suite writes its whole output to a file in bin/test-logs. The runner prints the output of failed tests itself,
// and exits with status 1 when a suite failed.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"clusterctl/tests/lab/cluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := runSuites(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// runSuites returns the exit status: 0 when every suite passed, 1 when one failed, 2 when the arguments are wrong.
func runSuites(ctx context.Context, args []string) int {
	flags := flag.NewFlagSet("runner", flag.ContinueOnError)
	only := flags.String("only", "", "names of suites to run, separated by commas; all when empty")
	places := flags.Int("places", 2, "how many suites run at a time, beside one in the background")
	fresh := flags.Bool("fresh", false, "run all tests, also those that passed and whose inputs have not changed")
	list := flags.Bool("list", false, "print the suites instead of running them")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: runner [flags] check|test|all")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return 2
	}
	chosen, err := chooseSuites(flags.Arg(0), *only)
	if err != nil || flags.NArg() != 1 {
		if err != nil {
			fmt.Fprintln(os.Stderr, "runner:", err)
		}
		flags.Usage()
		return 2
	}
	if *list {
		for _, s := range chosen {
			fmt.Printf("%-12s %s\n", s.name, s.about)
		}
		return 0
	}
	root, err := cluster.Root()
	if err != nil {
		fmt.Fprintln(os.Stderr, "runner:", err)
		return 1
	}
	r := &runner{
		root:         root,
		logs:         filepath.Join(root, "bin", "test-logs"),
		parallelJobs: *places,
		usesCache:    !*fresh,
	}
	start := time.Now()
	results, err := r.run(ctx, chosen)
	if err != nil {
		fmt.Fprintln(os.Stderr, "runner:", err)
		return 1
	}
	fmt.Print(formatTable(results, time.Since(start)))
	if slices.ContainsFunc(results, result.hasFailed) {
		return 1
	}
	return 0
}

// chooseSuites returns the suites of a target in the order of the list. With names it returns only these and those that
// they need.
func chooseSuites(target, only string) ([]suite, error) {
	if !slices.Contains(targets, target) {
		return nil, fmt.Errorf("no target is called %q: choose one of %s", target, strings.Join(targets, ", "))
	}
	chosen := slices.DeleteFunc(slices.Clone(suites), func(s suite) bool { return !slices.Contains(s.targets, target) })
	if only == "" {
		return chosen, nil
	}
	names := strings.Split(only, ",")
	for _, name := range names {
		at := slices.IndexFunc(chosen, func(s suite) bool { return s.name == name })
		if at < 0 {
			return nil, fmt.Errorf("target %s has no suite called %s", target, name)
		}
		names = append(names, chosen[at].needs)
	}
	return slices.DeleteFunc(chosen, func(s suite) bool { return !slices.Contains(names, s.name) }), nil
}
