package main

// The targets of `make check`, `make test` and `make test-all`.
const (
	check = "check"
	test  = "test"
	all   = "all"
)

var targets = []string{check, test, all}

// suite is one row of the table: a program, or packages of Go tests.
type suite struct {
	name    string
	about   string
	targets []string

	// background suites run one at a time beside all others, and only use processor time that the others leave.
	background bool
	env        []string // for the program or the tests
	needs      string   // a suite of the same target that must pass first; empty: none

	command []string // a program and its arguments, run in the root of the repository

	packages []string // packages of tests instead of a program; rest: all packages that no suite names
	again    bool     // rest includes its packages, too
	race     bool     // the tests are built with the race detector
	run      string   // as go test -run
	args     []string // for the tests' own flags
	timeout  string   // as go test -timeout

	// lab suites run as root with the programs of a bundle, most of them on their own machines.
	lab    bool
	bundle string // the bundle's folder below bin; empty: bin itself
	// each means that every test starts its own machines, so that two of them can run at a time.
	each bool
	// apart names tests that run on their own machines, in parallel with the other tests of the suite.
	apart string
}

// rest stands for all packages that no suite names.
const rest = "rest"

// suites are all suites. The runner starts them in this order: those that take longest come first.
var suites = []suite{
	{name: "race-bundle", about: "build the programs for suites that look for data races",
		targets:    []string{test, all},
		background: true, command: []string{"make", "--no-print-directory", "race-bundle"}},
	{name: "lint", about: "gofmt, go vet, staticcheck", targets: []string{check, test, all},
		background: true, command: []string{"make", "--no-print-directory", "lint"}},
	{name: "packages", about: "every package that needs no machines", targets: []string{check},
		packages: []string{rest}, timeout: "10m"},
	{name: "packages-race", about: "every package that needs no machines, with the race detector",
		targets:    []string{test, all},
		background: true, packages: []string{rest}, race: true, timeout: "30m"},
	{name: "scripts", about: "scripts that run clusterctl", targets: []string{check, test, all},
		background: true, packages: []string{"./cmd/clusterctl"}, timeout: "15m"},
	{name: "amounts", about: "tests that use smaller amounts under the race detector, with whole ones",
		targets:    []string{test, all},
		background: true,
		packages:   []string{"./daemons/apiserver", "./daemons/ingress", "./daemons/ingress/proxy", "./provision/run"},
		again:      true, timeout: "15m"},
	{name: "clock", about: "controllers under faults, by a moved clock", targets: []string{check},
		packages: []string{"./tests/faults"}, run: "GoesByTheClock", timeout: "10m"},
	{name: "dev", about: "controllers on a development cluster", targets: []string{check},
		packages: []string{"./tests/dev"}, timeout: "10m"},
	{name: "prometheus", about: "rules and alerts of Debian's Prometheus over a control plane and a node that pretends",
		targets:    []string{all},
		background: true, packages: []string{"./tests/prometheus"}, timeout: "40m"},

	{name: "e2e", about: "scripts of kubectl and clusterctl on three machines", targets: []string{test},
		packages: []string{"./tests/e2e"}, lab: true, apart: "TestClusterctl", timeout: "25m"},
	{name: "roll", about: "changes of a control plane of three machines", targets: []string{test, all},
		packages: []string{"./tests/roll"}, lab: true, each: true, timeout: "15m"},
	{name: "flows", about: "what users expect of a cluster; its daemons have the race detector",
		targets:  []string{test, all},
		packages: []string{"./tests/flows"}, lab: true, bundle: "race", needs: "race-bundle", timeout: "20m"},
	{name: "node", about: "the kubelet on a real container runtime, with the race detector",
		targets:  []string{test, all},
		packages: []string{"./tests/node"}, lab: true, race: true, needs: "race-bundle", timeout: "15m"},
	{name: "dev-race", about: "controllers on a development cluster; its daemons have the race detector",
		targets:  []string{test, all},
		packages: []string{"./tests/dev"}, lab: true, bundle: "race", needs: "race-bundle", timeout: "15m"},
	{name: "disaster", about: "three disasters, by turns from commit to commit", targets: []string{test},
		packages: []string{"./tests/disaster"}, lab: true, timeout: "25m"},
	{name: "chaos", about: "three minutes of random faults on six machines", targets: []string{test},
		lab: true, command: []string{"bin/chaos", "run", "-seed", "1", "-minutes", "3"}},
	{name: "matrix", about: "packets every way through real machines", targets: []string{test},
		packages: []string{"./tests/matrix"}, lab: true, run: "TestPacketsGoEveryWay", timeout: "15m"},
	{name: "packets", about: "clients on every way in while daemons are killed", targets: []string{test},
		packages: []string{"./tests/packets"}, lab: true, timeout: "15m"},
	{name: "form", about: "a control plane of static pods, and back", targets: []string{test, all},
		packages: []string{"./tests/form"}, lab: true, timeout: "15m"},
	{name: "demo", about: "make demo, and every command that it prints", targets: []string{test, all},
		packages: []string{"./tests/demo"}, lab: true, timeout: "15m"},
	{name: "interrupt", about: "an apply that is interrupted, and the next one", targets: []string{test},
		packages: []string{"./tests/interrupt"}, lab: true, timeout: "15m"},
	{name: "clock-race", about: "controllers under faults, by a moved clock, with the race detector",
		targets:    []string{test},
		background: true, packages: []string{"./tests/faults"}, run: "GoesByTheClock", race: true, timeout: "10m"},

	{name: "oracle", about: "scheduler and policies against plain models, 20,000 clusters each",
		targets:    []string{all},
		background: true, command: []string{"make", "--no-print-directory", "oracle"}},
	{name: "faults", about: "controllers under faults and killed leaders, 20 rounds", targets: []string{all},
		background: true, packages: []string{"./tests/faults"}, race: true, env: []string{"ROUNDS=20"},
		timeout: "120m"},
	{name: "memory", about: "conformance to the API's documentation, over the store in memory",
		targets:    []string{all},
		background: true, packages: []string{"./tests/conformance"},
		args: []string{"-args", "-store=memory"}, timeout: "15m"},
	{name: "gateway", about: "Gateway API's own conformance suite", targets: []string{all},
		command: []string{"make", "--no-print-directory", "conformance-gateway"}},
	{name: "e2e-all", about: "scripts of kubectl and clusterctl, every one with Debian's kubectl, too",
		targets:  []string{all},
		packages: []string{"./tests/e2e"}, lab: true, apart: "TestClusterctl",
		args: []string{"-every-script"}, timeout: "40m"},
	{name: "disaster-all", about: "every disaster", targets: []string{all},
		packages: []string{"./tests/disaster"}, lab: true, args: []string{"-all"}, timeout: "180m"},
	{name: "matrix-all", about: "packets every way in every mode of the proxy, also through routers",
		targets:  []string{all},
		packages: []string{"./tests/matrix"}, lab: true,
		args: []string{"-modes", "nftables,iptables,userspace"}, timeout: "40m"},
	{name: "packets-all", about: "clients on every way in while each daemon is killed 50 times",
		targets:  []string{all},
		packages: []string{"./tests/packets"}, lab: true, args: []string{"-kills", "50"}, timeout: "120m"},
	{name: "interrupt-all", about: "40 applies that are interrupted", targets: []string{all},
		packages: []string{"./tests/interrupt"}, lab: true, args: []string{"-points", "40"}, timeout: "90m"},
	{name: "chaos-api", about: "ten minutes of faults on three API servers and their store", targets: []string{all},
		command: []string{"make", "--no-print-directory", "chaos-api"}},
	{name: "chaos-all", about: "30 minutes of random faults on six machines", targets: []string{all},
		lab: true, command: []string{"bin/chaos", "run", "-minutes", "30"}},
	{name: "chaos-full", about: "every daemon killed and stopped in turn, no majority, a lost member, zones cut off",
		targets: []string{all},
		command: []string{"make", "--no-print-directory", "chaos-full"}},
	{name: "flood", about: "ten minutes of floods on every listener", targets: []string{all},
		command: []string{"make", "--no-print-directory", "flood", "MINUTES=10"}},
}
