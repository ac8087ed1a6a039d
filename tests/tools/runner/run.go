package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// flagsOfBuild are the Makefile's MODFLAGS, so that tests and programs share what is compiled.
var flagsOfBuild = []string{"-trimpath", "-buildvcs=false", "-tags", "grpcnotrace"}

// raceOptions are the defaults of variables for tests with the race detector. The first shortens the time for which a
// program waits at its end for other threads' races: by default it is a second for each package. The second lets heaps
// grow further between collections, which are expensive with the detector, and also makes the linker faster.
var raceOptions = []string{"GORACE=atexit_sleep_ms=50", "GOGC=400"}

// parallelPackages is how many packages a suite compiles or tests at a time. Many tests mostly wait.
const parallelPackages = "3"

// Kinds of places.
const (
	foreground = false
	background = true
)

// runner runs suites on a machine with a number of places.
type runner struct {
	root         string
	logs         string
	parallelJobs int
	usesCache    bool // cached results of Go count

	mu sync.Mutex // guards standard output
}

// job is a part of a suite that runs separately.
type job struct {
	suite int // index of the suite
	name  string
	argv  []string
	dir   string
	env   []string
	json  bool // standard output has go test's events

	compile []string // runs first, in the root of the repository

	place bool // foreground or background: the kind of place that the job occupies
}

// result is the result of a suite.
type result struct {
	suite
	passed, cached, failedTests, skipped int
	began, ended                         time.Time
	processor                            time.Duration // also of the processes on its machines
	errs                                 []error
}

func (r result) hasFailed() bool { return len(r.errs) > 0 }

// run runs the suites and returns their results in the same order. It starts them in the order of the list, but starts
// a later suite if no earlier one fits in the free places.
func (r *runner) run(ctx context.Context, chosen []suite) ([]result, error) {
	if err := os.RemoveAll(r.logs); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(r.root, "bin", "tests"), 0o755); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(r.logs, 0o755); err != nil {
		return nil, err
	}
	results := make([]result, len(chosen))
	var waiting []job
	for i, s := range chosen {
		results[i].suite = s
		jobs, err := r.jobs(ctx, i, s)
		if err != nil {
			results[i].errs = append(results[i].errs, err)
			r.report("FAIL %s: %v\n", s.name, err)
		}
		waiting = append(waiting, jobs...)
	}
	// Background suites run one at a time beside the places of the others. When no other suite waits for a place, they
	// use those, too.
	free := map[bool]int{foreground: r.parallelJobs, background: 1}
	left := make([]int, len(chosen)) // jobs of each suite that have not ended
	for _, j := range waiting {
		left[j.suite]++
	}
	running := 0
	ended := make(chan outcome)
	placeFor := func(j job) bool {
		waits := func(o job) bool { return !chosen[o.suite].isBackground }
		if chosen[j.suite].isBackground && free[background] == 0 && !slices.ContainsFunc(waiting, waits) {
			return foreground
		}
		return chosen[j.suite].isBackground
	}
	for len(waiting) > 0 || running > 0 {
		at := slices.IndexFunc(waiting, func(j job) bool {
			s := chosen[j.suite]
			needed := slices.IndexFunc(chosen, func(o suite) bool { return o.name == s.needs })
			return free[placeFor(j)] > 0 && (needed < 0 || left[needed] == 0)
		})
		if at >= 0 && ctx.Err() == nil {
			j := waiting[at]
			waiting = slices.Delete(waiting, at, at+1)
			needed := slices.IndexFunc(results, func(o result) bool { return o.name == chosen[j.suite].needs })
			if needed >= 0 && results[needed].hasFailed() {
				left[j.suite]--
				err := fmt.Errorf("%s: not run, since %s failed", j.name, results[needed].name)
				results[j.suite].errs = append(results[j.suite].errs, err)
				continue
			}
			j.place = placeFor(j)
			free[j.place]--
			running++
			go func() { ended <- r.runJob(ctx, j, chosen[j.suite]) }()
			continue
		}
		if running == 0 {
			return results, context.Cause(ctx)
		}
		o := <-ended
		running--
		left[o.suite]--
		free[o.place]++
		results[o.suite].add(o)
	}
	return results, nil
}

// jobs returns the parts of a suite. It compiles the tests of a lab once for all parts.
func (r *runner) jobs(ctx context.Context, at int, s suite) ([]job, error) {
	environment := append(append(os.Environ(), "CLUSTERCTL_BUNDLE="+filepath.Join(r.root, "bin", s.bundle)), s.env...)
	if s.command != nil {
		argv := s.command
		if s.needsLab {
			argv = asRoot(r.root, s, argv)
		}
		return []job{{suite: at, name: s.name, argv: argv, dir: r.root, env: environment}}, nil
	}
	flags := slices.Clone(flagsOfBuild)
	if s.needsRace {
		flags = append(flags, "-race")
		environment = append(environment, "CGO_ENABLED=1")
		for _, option := range raceOptions {
			if name, _, _ := strings.Cut(option, "="); os.Getenv(name) == "" {
				environment = append(environment, option)
			}
		}
	} else {
		environment = append(environment, "CGO_ENABLED=0")
	}
	if !s.needsLab {
		packages, err := r.packages(ctx, s.packages)
		if err != nil {
			return nil, err
		}
		argv := append([]string{"go", "test", "-json", "-vet=off", "-timeout", s.timeout, "-p", parallelPackages},
			flags...)
		if !r.usesCache {
			argv = append(argv, "-count=1")
		}
		if s.run != "" {
			argv = append(argv, "-run", s.run)
		}
		argv = append(append(argv, packages...), s.args...)
		return []job{{suite: at, name: s.name, argv: argv, dir: r.root, env: environment, json: true}}, nil
	}
	binary := filepath.Join(r.root, "bin", "tests", s.name)
	compile := append(append([]string{"go", "test", "-c", "-vet=off", "-o", binary}, flags...), s.packages...)
	dir := filepath.Join(r.root, s.packages[0])
	part := func(name string, flags ...string) job {
		argv := []string{"go", "tool", "test2json", "-t", "-p", s.packages[0]}
		tests := append(append([]string{binary, "-test.v=test2json", "-test.timeout=" + s.timeout}, flags...),
			s.args...)
		argv = append(argv, asRoot(r.root, s, tests)...)
		return job{suite: at, name: name, argv: argv, dir: dir, env: environment, json: true}
	}
	if !s.hasOwnMachines && s.separateTests == nil {
		j := part(s.name, "-test.run="+s.run)
		j.compile = compile
		return []job{j}, nil
	}
	if err := r.command(ctx, environment, compile).Run(); err != nil {
		return nil, fmt.Errorf("compile the tests: %w", err)
	}
	if s.separateTests != nil {
		var jobs []job
		for _, name := range s.separateTests {
			jobs = append(jobs, part(s.name+"/"+name, "-test.run=^"+name+"$"))
		}
		others := "-test.skip=^(" + strings.Join(s.separateTests, "|") + ")$"
		return append(jobs, part(s.name, others)), nil
	}
	list := exec.CommandContext(ctx, binary, "-test.list", ".")
	list.Dir, list.Env = dir, environment
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list the tests: %w", err)
	}
	var jobs []job
	for _, name := range strings.Fields(string(out)) {
		jobs = append(jobs, part(s.name+"/"+name, "-test.run=^"+name+"$"))
	}
	return jobs, nil
}

// command returns a command that runs in the root of the repository and prints its output.
func (r *runner) command(ctx context.Context, environment, argv []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = r.root, environment, os.Stdout, os.Stderr
	return cmd
}

// asRoot returns a command that runs as root with the suite's bundle.
func asRoot(root string, s suite, argv []string) []string {
	if os.Geteuid() == 0 {
		return argv
	}
	bundle := filepath.Join(root, "bin", s.bundle)
	return append([]string{"sudo", "env", "PATH=" + os.Getenv("PATH"), "CLUSTERCTL_BUNDLE=" + bundle}, argv...)
}

// packages replaces the word rest with the packages that it stands for.
func (r *runner) packages(ctx context.Context, names []string) ([]string, error) {
	if !slices.Equal(names, []string{restPackages}) {
		return names, nil
	}
	var named []string
	for _, s := range suites {
		if s.includedInRest {
			continue
		}
		for _, p := range s.packages {
			named = append(named, "clusterctl/"+strings.TrimPrefix(p, "./"))
		}
	}
	// go test would also compile packages without tests, some of which have large dependencies.
	const withTests = "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}"
	list := exec.CommandContext(ctx, "go", append(append([]string{"list", "-f", withTests}, flagsOfBuild...),
		"./...")...)
	list.Dir = r.root
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages: %w", err)
	}
	all := slices.DeleteFunc(strings.Fields(string(out)), func(p string) bool { return slices.Contains(named, p) })
	slices.SortStableFunc(all, func(a, b string) int { return cmp.Compare(startPosition(a), startPosition(b)) })
	return all, nil
}

// slowPackages take longest. They start first, so that none of them runs alone at the end of its suite.
var slowPackages = []string{
	"clusterctl/provision/run",
	"clusterctl/daemons/apiserver",
	"clusterctl/tests/suites/sshd",
	"clusterctl/daemons/gitops",
	"clusterctl/daemons/proxy",
	"clusterctl/daemons/ingress/proxy",
	"clusterctl/daemons/network",
	"clusterctl/daemons/kubelet",
}

// startPosition returns the position of a package in the order of starts.
func startPosition(name string) int {
	if at := slices.Index(slowPackages, name); at >= 0 {
		return at
	}
	return len(slowPackages)
}

// outcome is the result of a job.
type outcome struct {
	job
	counts
	began, ended time.Time
	processor    time.Duration
	err          error
}

// addProcessor adds the processor time of a command that has ended, and of its descendants.
func (o *outcome) addProcessor(cmd *exec.Cmd) {
	if s := cmd.ProcessState; s != nil {
		o.processor += s.UserTime() + s.SystemTime()
	}
}

// runJob runs a job to its end.
func (r *runner) runJob(ctx context.Context, j job, s suite) (o outcome) {
	o = outcome{job: j, began: time.Now()}
	defer func() { o.ended = time.Now() }()
	log, err := os.Create(filepath.Join(r.logs, strings.ReplaceAll(j.name, "/", "-")+".log"))
	if err != nil {
		o.err = err
		return o
	}
	defer log.Close()
	r.report("run  %s\n", j.name)
	if j.compile != nil {
		compile := r.command(ctx, j.env, j.compile)
		err := compile.Run()
		o.addProcessor(compile)
		if err != nil {
			o.err = fmt.Errorf("compile the tests: %w", err)
			r.report("FAIL %s: %v\n", j.name, o.err)
			return o
		}
		o.began = time.Now() // compile time is not counted
	}
	cmd := exec.CommandContext(ctx, j.argv[0], j.argv[1:]...)
	cmd.Dir, cmd.Env = j.dir, j.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = 2 * time.Minute // an interrupted suite takes its machines down
	var events tests
	cmd.Stdout, cmd.Stderr = log, log
	if j.json {
		read, write := io.Pipe()
		parsed := make(chan struct{})
		go func() { defer close(parsed); events.read(read, log) }()
		cmd.Stdout = write
		defer func() { _ = write.Close(); <-parsed }()
		o.err = cmd.Run()
		_ = write.Close()
		<-parsed
	} else {
		o.err = cmd.Run()
	}
	o.counts = events.counts
	o.addProcessor(cmd)
	took := time.Since(o.began).Round(time.Second)
	if o.err != nil {
		r.report("%sFAIL %s after %s: %v; the whole output is in %s\n", events.failures(), j.name, took, o.err,
			log.Name())
		if !j.json {
			r.report("%s\n", tailOfFile(log.Name(), 4000))
		}
		return o
	}
	r.report("ok   %s %s\n", j.name, took)
	return o
}

// report prints progress for the user.
func (r *runner) report(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Printf(format, args...)
}

// tailOfFile returns the end of a file.
func tailOfFile(path string, size int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-size):])
}
