// Command kubebench loads a Kubernetes-compatible API server and prints one JSON object per measurement on standard
// output.
//
//	kubebench <command> [flags]
//
// It needs only a kubeconfig, so the same command can measure different API servers, and the lines can be compared.
// Besides latency, it records the CPU seconds and memory of the processes named with --proc. CPU time varies much less
// on a shared machine than elapsed time.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sort"
	"strings"
	"syscall"
	"time"
)

// command is one measurement kubebench can make.
type command struct {
	help string
	// setup registers the command's own flags and returns its body.
	setup func(fs *flag.FlagSet, c *commonFlags) func(ctx context.Context) error
}

var commands = map[string]command{
	"startup":    {"start a server repeatedly (after --) and time exec to /readyz ok", startupCmd},
	"proc":       {"print CPU seconds and memory of the --proc processes", procCmd},
	"create":     {"create objects", createCmd},
	"get":        {"read random objects", getCmd},
	"list":       {"list objects without decoding them", listCmd},
	"update":     {"PUT every object once", updateCmd},
	"patch":      {"merge-patch every object once", patchCmd},
	"delete":     {"delete objects one by one", deleteCmd},
	"clean":      {"delete all benchmark objects of a kind", cleanCmd},
	"watch":      {"open many watches, update pods, measure event delivery", watchCmd},
	"storm":      {"list and watch with thousands of informers at once", stormCmd},
	"nodes":      {"create schedulable fake nodes", nodesCmd},
	"schedule":   {"create pods and time until a scheduler has bound them", scheduleCmd},
	"deployment": {"create a Deployment and time until all its pods exist", deploymentCmd},
}

func usage() {
	names := make([]string, 0, len(commands))
	for n := range commands {
		names = append(names, n)
	}
	sort.Strings(names)
	fmt.Fprintln(os.Stderr, "usage: kubebench <command> [flags]   (kubebench <command> -h lists flags)")
	for _, n := range names {
		fmt.Fprintf(os.Stderr, "  %-11s %s\n", n, commands[n].help)
	}
}

func main() {
	if len(os.Args) < 2 {
		usage()
		os.Exit(2)
	}
	cmd, ok := commands[os.Args[1]]
	if !ok {
		usage()
		os.Exit(2)
	}
	fs := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	c := &commonFlags{op: os.Args[1]}
	c.register(fs)
	run := cmd.setup(fs, c)
	_ = fs.Parse(os.Args[2:])
	c.args = fs.Args()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()

	err := c.validate()
	if err == nil {
		err = run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kubebench:", err)
		os.Exit(1)
	}
}

// commonFlags holds the flags every command has.
type commonFlags struct {
	op   string
	args []string

	kubeconfig  string
	server      string
	contentType string
	compress    bool
	concurrency int
	connections int
	namespace   string
	label       string
	procs       procFlag
	timeout     time.Duration
}

func (c *commonFlags) register(fs *flag.FlagSet) {
	fs.StringVar(&c.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig `file`")
	fs.StringVar(&c.server, "server", "", "override the kubeconfig's server `URL`")
	fs.StringVar(&c.contentType, "content-type", "protobuf", "protobuf or json, for requests and responses")
	fs.BoolVar(&c.compress, "compress", false, "accept gzip-compressed responses")
	fs.IntVar(&c.concurrency, "concurrency", 16, "requests in flight")
	fs.IntVar(&c.connections, "connections", 0, "TCP connections to spread requests over (0: one per 16 in flight)")
	fs.StringVar(&c.namespace, "namespace", "bench", "namespace of the benchmark objects")
	fs.StringVar(&c.label, "label", "", "free text copied to the output")
	fs.Var(&c.procs, "proc", "`name=pid` (or name=@pidfile) of a process to account; repeatable, comma separated")
	fs.DurationVar(&c.timeout, "timeout", 20*time.Minute, "give up after this long")
}

func (c *commonFlags) validate() error {
	if c.contentType != "protobuf" && c.contentType != "json" {
		return fmt.Errorf("--content-type must be protobuf or json, not %q", c.contentType)
	}
	if c.concurrency < 1 {
		return fmt.Errorf("--concurrency must be at least 1")
	}
	if c.connections < 1 {
		c.connections = (c.concurrency + 15) / 16
	}
	return nil
}

// Result is one output line. Durations are in the unit their name ends with.
type Result struct {
	Time        time.Time             `json:"time"`
	Op          string                `json:"op"`
	Label       string                `json:"label,omitempty"`
	Kind        string                `json:"kind,omitempty"`
	ContentType string                `json:"content_type,omitempty"`
	Compress    bool                  `json:"compress,omitempty"`
	Concurrency int                   `json:"concurrency,omitempty"`
	Connections int                   `json:"connections,omitempty"`
	N           int                   `json:"n"`
	Errors      int                   `json:"errors"`
	FirstError  string                `json:"first_error,omitempty"`
	ElapsedS    float64               `json:"elapsed_s"`
	PerSecond   float64               `json:"per_s,omitempty"`
	Latency     *Summary              `json:"latency,omitempty"`
	Extra       map[string]any        `json:"extra,omitempty"`
	Procs       map[string]*ProcDelta `json:"procs,omitempty"`
	ClientCPUs  float64               `json:"client_cpu_s"` // kubebench itself
	HostCPUs    float64               `json:"host_cpu_s"`   // everything on the machine
	StealS      float64               `json:"steal_s"`
	Load1       float64               `json:"load1"`
}

// result returns a line with the fields that describe the invocation filled in.
func (c *commonFlags) result(kind string) *Result {
	return &Result{
		Time: time.Now().UTC().Truncate(time.Millisecond), Op: c.op, Label: c.label, Kind: kind,
		ContentType: c.contentType, Compress: c.compress,
		Concurrency: c.concurrency, Connections: c.connections,
		Extra: map[string]any{},
	}
}

func (r *Result) print() error {
	out, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = fmt.Println(string(out))
	return err
}

// stringList is a repeatable, comma-separated flag.
type stringList []string

func (s *stringList) String() string     { return strings.Join(*s, ",") }
func (s *stringList) Set(v string) error { *s = append(*s, strings.Split(v, ",")...); return nil }
