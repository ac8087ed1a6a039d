package main

// The targets of `make check`, `make test` and `make test-all`.
const (
	checkTarget = "check"
	testTarget  = "test"
	allTarget   = "all"
)

var targets = []string{checkTarget, testTarget, allTarget}

// suite is one row of the table: a program, or packages of Go tests.
type suite struct {
	name    string
	about   string
	targets []string

	// isBackground suites run one at a time beside the others.
	isBackground bool
	env          []string // for the program or the tests
	needs        string   // a suite of the same target that must pass first; empty: none

	command []string // a program and its arguments, run in the root of the repository

	packages       []string // packages of tests instead of a program; rest: all packages that no suite names
	includedInRest bool     // rest includes its packages, too
	needsRace      bool     // the tests are built with the race detector
	run            string   // as go test -run
	args           []string // for the tests' own flags
	timeout        string   // as go test -timeout

	// needsLab suites run as root with the programs of a bundle, most of them on their own machines.
	needsLab bool
	bundle   string // the bundle's folder below bin; empty: bin itself
	// hasOwnMachines means that every test starts its own machines, so that two of them can run at a time.
	hasOwnMachines bool
	// separateTests are tests that run on their own machines, each in parallel with the others and with the rest of the
	// suite.
	separateTests []string
}

// e2eInTurn are the tests of e2e whose scripts run one after the other.
var e2eInTurn = []string{"TestClusterctl", "TestControlPlane"}

// restPackages stands for all packages that no suite names.
const restPackages = "rest"

// suites are all suites. The runner starts them in this order: those that take longest come first.
var suites = []suite{
	{name: "race-bundle", about: "build the programs for suites that look for data races",
		targets:      []string{testTarget, allTarget},
		isBackground: true, command: []string{"make", "--no-print-directory", "race-bundle"}},
	{name: "lint", about: "gofmt, go vet, staticcheck", targets: []string{checkTarget, testTarget, allTarget},
		isBackground: true, command: []string{"make", "--no-print-directory", "lint"}},
	{name: "packages", about: "every package that needs no machines", targets: []string{checkTarget},
		packages: []string{restPackages}, timeout: "10m"},
	{name: "packages-race", about: "every package that needs no machines, with the race detector",
		targets:  []string{testTarget, allTarget},
		packages: []string{restPackages}, needsRace: true, timeout: "30m"},
	{name: "structure", about: "boundaries between packages, sizes of programs, and what documents state",
		targets:      []string{checkTarget, testTarget, allTarget},
		isBackground: true,
		packages: []string{"./tests/tools/arch", "./tests/tools/document", "./tests/tools/size",
			"./tests/tools/style"},
		timeout: "20m"},
	{name: "gitops", about: "the GitOps controller's program, which is a module of its own",
		targets:      []string{checkTarget, testTarget, allTarget},
		isBackground: true, command: []string{"make", "--no-print-directory", "test-gitops"}},
	{name: "scripts", about: "scripts that run clusterctl", targets: []string{checkTarget, testTarget, allTarget},
		isBackground: true, packages: []string{"./cmd/clusterctl"}, timeout: "20m"},
	{name: "amounts", about: "tests that use smaller amounts under the race detector, with whole ones",
		targets:      []string{testTarget, allTarget},
		isBackground: true,
		packages: []string{"./daemons/apiserver", "./daemons/ingress", "./daemons/ingress/proxy",
			"./provision/run"},
		includedInRest: true, timeout: "20m"},
	{name: "clock", about: "controllers under faults, by a moved clock", targets: []string{checkTarget},
		packages: []string{"./tests/suites/faults"}, run: "GoesByTheClock", timeout: "10m"},
	{name: "conformance", about: "conformance to the API's documentation, over etcd",
		targets:      []string{checkTarget, testTarget, allTarget},
		isBackground: true, packages: []string{"./tests/suites/conformance"}, timeout: "20m"},
	{name: "dev", about: "controllers on a development cluster", targets: []string{checkTarget},
		packages: []string{"./tests/suites/dev"}, timeout: "10m"},
	{name: "prometheus", about: "rules and alerts of Debian's Prometheus over a control plane and a node that pretends",
		targets:      []string{allTarget},
		isBackground: true, packages: []string{"./tests/suites/prometheus"}, timeout: "40m"},

	{name: "e2e", about: "scripts of kubectl and clusterctl on three machines", targets: []string{testTarget},
		packages: []string{"./tests/suites/e2e"}, needsLab: true, separateTests: e2eInTurn, timeout: "25m"},
	{name: "roll", about: "changes of a control plane of three machines", targets: []string{testTarget, allTarget},
		packages: []string{"./tests/suites/roll"}, needsLab: true, hasOwnMachines: true, timeout: "15m"},
	{name: "flows", about: "what users expect of a cluster; its daemons have the race detector",
		targets:  []string{testTarget, allTarget},
		packages: []string{"./tests/suites/flows"}, needsLab: true, bundle: "race", needs: "race-bundle",
		timeout: "20m"},
	{name: "node", about: "the kubelet on a real container runtime, with the race detector",
		targets:  []string{testTarget, allTarget},
		packages: []string{"./tests/suites/node"}, needsLab: true, needsRace: true, needs: "race-bundle",
		timeout: "15m"},
	{name: "dev-race", about: "controllers on a development cluster; its daemons have the race detector",
		targets:  []string{testTarget, allTarget},
		packages: []string{"./tests/suites/dev"}, needsLab: true, bundle: "race", needs: "race-bundle", timeout: "15m"},
	{name: "disaster", about: "one disaster, by turns from commit to commit", targets: []string{testTarget},
		packages: []string{"./tests/suites/disaster"}, needsLab: true, timeout: "25m"},
	{name: "dashboard", about: "every page of the dashboard in Chromium, over a development cluster",
		targets:  []string{testTarget, allTarget},
		packages: []string{"./tests/suites/dashboard"}, timeout: "20m"},
	{name: "matrix", about: "packets every way through real machines", targets: []string{testTarget},
		packages: []string{"./tests/suites/matrix"}, needsLab: true, run: "TestPacketsGoEveryWay", timeout: "15m"},
	{name: "packets", about: "clients on every way in while daemons are killed", targets: []string{testTarget},
		packages: []string{"./tests/suites/packets"}, needsLab: true, timeout: "15m"},
	{name: "form", about: "a control plane of static pods, and back", targets: []string{testTarget, allTarget},
		packages: []string{"./tests/suites/form"}, needsLab: true, timeout: "15m"},
	{name: "demo", about: "make demo, and every command that it prints", targets: []string{testTarget, allTarget},
		packages: []string{"./tests/suites/demo"}, needsLab: true, timeout: "15m"},
	{name: "interrupt", about: "an apply that is interrupted, and the next one", targets: []string{testTarget},
		packages: []string{"./tests/suites/interrupt"}, needsLab: true, timeout: "15m"},
	{name: "clock-race", about: "controllers under faults, by a moved clock, with the race detector",
		targets:      []string{testTarget},
		isBackground: true, packages: []string{"./tests/suites/faults"}, run: "GoesByTheClock", needsRace: true,
		timeout: "20m"},

	{name: "oracle", about: "scheduler and policies against plain models, 20,000 clusters each",
		targets:      []string{allTarget},
		isBackground: true, command: []string{"make", "--no-print-directory", "oracle"}},
	{name: "faults", about: "controllers under faults and killed leaders, 20 rounds", targets: []string{allTarget},
		isBackground: true, packages: []string{"./tests/suites/faults"}, needsRace: true, env: []string{"ROUNDS=20"},
		timeout: "120m"},
	{name: "memory", about: "conformance to the API's documentation, over the store in memory",
		targets:      []string{allTarget},
		isBackground: true, packages: []string{"./tests/suites/conformance"},
		args: []string{"-args", "-store=memory"}, timeout: "15m"},
	{name: "libraries", about: "HTTP/2, calls to etcd and objects' JSON over libraries instead of our own code",
		targets:      []string{allTarget},
		isBackground: true, command: []string{"make", "--no-print-directory", "test-libraries"}},
	{name: "dashboard-all", about: "a table of 50,000 pods in Chromium", targets: []string{allTarget},
		isBackground: true, packages: []string{"./tests/suites/dashboard"}, run: "TestALargeTable",
		args: []string{"-args", "-rows=50000"}, timeout: "30m"},
	{name: "gateway", about: "Gateway API's own conformance suite", targets: []string{allTarget},
		command: []string{"make", "--no-print-directory", "conformance-gateway"}},
	{name: "node-debian", about: "the kubelet on Debian's containerd and runc", targets: []string{allTarget},
		packages: []string{"./tests/suites/node"}, needsLab: true, needsRace: true,
		args: []string{"-runtime", "debian-runtime"}, timeout: "20m"},
	{name: "e2e-all", about: "scripts of kubectl and clusterctl, every one with Debian's kubectl, too",
		targets:  []string{allTarget},
		packages: []string{"./tests/suites/e2e"}, needsLab: true, separateTests: e2eInTurn,
		args: []string{"-every-script"}, timeout: "40m"},
	{name: "disaster-all", about: "every disaster", targets: []string{allTarget},
		packages: []string{"./tests/suites/disaster"}, needsLab: true, args: []string{"-all"}, timeout: "180m"},
	{name: "matrix-all", about: "packets every way in every mode of the proxy, also through routers",
		targets:  []string{allTarget},
		packages: []string{"./tests/suites/matrix"}, needsLab: true,
		args: []string{"-modes", "nftables,iptables,userspace"}, timeout: "40m"},
	{name: "packets-all", about: "clients on every way in while each daemon is killed 50 times",
		targets:  []string{allTarget},
		packages: []string{"./tests/suites/packets"}, needsLab: true, args: []string{"-kills", "50"}, timeout: "120m"},
	{name: "interrupt-all", about: "40 applies that are interrupted", targets: []string{allTarget},
		packages: []string{"./tests/suites/interrupt"}, needsLab: true, args: []string{"-points", "40"},
		timeout: "90m"},
	{name: "chaos-api", about: "ten minutes of faults on three API servers and their " +
		"store", targets: []string{allTarget},
		command: []string{"make", "--no-print-directory", "chaos-api"}},
	{name: "chaos-all", about: "30 minutes of random faults on six machines", targets: []string{allTarget},
		needsLab: true, command: []string{"bin/chaos", "run", "-minutes", "30"}},
	{name: "chaos-full", about: "every daemon killed and stopped in turn, no majority, a lost member, zones cut off",
		targets: []string{allTarget},
		command: []string{"make", "--no-print-directory", "chaos-full"}},
	{name: "flood", about: "ten minutes of floods on every listener", targets: []string{allTarget},
		command: []string{"make", "--no-print-directory", "flood", "MINUTES=10"}},
}
