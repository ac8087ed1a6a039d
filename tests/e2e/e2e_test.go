// Package e2e drives a cluster of real machines from outside, with the real binaries:
// each script in testdata says one behaviour. One cluster serves all of them.
package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"clusterctl/tests/cluster"
	"clusterctl/tests/webimage"
)

var shared *cluster.Cluster

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	c, err := up(ctx, fmt.Sprintf("e2e-%d", os.Getpid()))
	if c != nil {
		defer func() {
			if err := c.Lab.Down(context.WithoutCancel(ctx)); err != nil {
				fmt.Fprintln(os.Stderr, "take the lab down:", err)
				code = 1
			}
		}()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bring a cluster up:", err)
		return 1
	}
	shared = c
	return m.Run()
}

// up brings up examples/small with the demo's workload.
func up(ctx context.Context, name string) (*cluster.Cluster, error) {
	root, err := cluster.Root()
	if err != nil {
		return nil, err
	}
	small, err := os.ReadFile(filepath.Join(root, "examples/small/cluster.hcl"))
	if err != nil {
		return nil, err
	}
	web, err := os.ReadFile(filepath.Join(root, "tests/demo/web.hcl"))
	if err != nil {
		return nil, err
	}
	c, err := cluster.New(ctx, cluster.Options{Name: name, Log: os.Stderr,
		Machines: []string{"control=10.99.0.11", "a=10.99.0.21", "b=10.99.0.22"},
		Files:    map[string]string{"cluster.hcl": string(small), "web.hcl": string(web)}})
	if err != nil {
		return nil, err
	}
	if err := webimage.Write(c.Bundle, filepath.Join(c.Folder, "images/web.tar"), "operator", "bookshop"); err != nil {
		return c, err
	}
	return c, c.Apply(ctx, os.Stderr)
}

func TestKubectl(t *testing.T)       { scripts(t, "kubectl", glob(t, "kubectl")...) }
func TestKubectlDebian(t *testing.T) { scripts(t, "kubectl-debian", glob(t, "kubectl")...) }
func TestCluster(t *testing.T)       { scripts(t, "kubectl", glob(t, "cluster")...) }

// Scripts that take nodes out of service run one after the other.
func TestKubectlNodes(t *testing.T) {
	for _, kubectl := range []string{"kubectl", "kubectl-debian"} {
		for _, file := range glob(t, "nodes") {
			t.Run("", func(t *testing.T) { scripts(t, kubectl, file) })
		}
	}
}

// Scripts that change the machines run one after the other.
func TestClusterctl(t *testing.T) {
	for _, file := range glob(t, "clusterctl") {
		t.Run("", func(t *testing.T) { scripts(t, "kubectl", file) })
	}
}

func glob(t *testing.T, folder string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", folder, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts in %s: %v", folder, err)
	}
	return files
}

// minorOf asks a kubectl which 1.x it is.
func minorOf(t *testing.T, kubectl string) int {
	t.Helper()
	out, err := exec.Command(filepath.Join(shared.Bundle, kubectl), "version", "--client", "-o", "json").Output()
	var says struct {
		ClientVersion struct{ GitVersion string }
	}
	if err == nil {
		err = json.Unmarshal(out, &says)
	}
	_, minor, _ := strings.Cut(says.ClientVersion.GitVersion, ".")
	minor, _, _ = strings.Cut(minor, ".")
	n, convErr := strconv.Atoi(minor)
	if err := errors.Join(err, convErr); err != nil {
		t.Fatalf("ask %s for its version: %v", kubectl, err)
	}
	return n
}

func scripts(t *testing.T, kubectl string, files ...string) {
	minor := minorOf(t, kubectl)
	testscript.Run(t, testscript.Params{
		Files: files,
		Setup: func(env *testscript.Env) error {
			// A namespace of its own keeps a script from meeting others.
			name := strings.ToLower(strings.NewReplacer("_", "-", " ", "-").Replace(filepath.Base(env.WorkDir)))
			name = strings.Trim(strings.TrimPrefix(name, "script-")+"-"+strings.TrimPrefix(kubectl, "kubectl-"), "-")
			env.Setenv("NS", name)
			env.Setenv("KUBECTL", filepath.Join(shared.Bundle, kubectl))
			env.Setenv("CLUSTER", shared.Folder)
			env.Setenv("LAB", shared.Lab.Name)
			env.Setenv("BUNDLE", shared.Bundle)
			env.Setenv("TERM", "dumb")
			if err := nameImage(env.WorkDir, name); err != nil {
				return err
			}
			env.Defer(func() {
				gone, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				_ = shared.Kube(gone, "delete", "namespace", name, "--ignore-not-found", "--wait=false").Run()
			})
			// Scripts restart the API server, some of them one right after the other: the controllers' informers then back off, for
			// up to a minute.
			ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
			defer cancel()
			if _, err := cluster.Output(shared.Kube(ctx, "create", "namespace", name)); err != nil {
				return err
			}
			return cluster.Eventually(ctx, time.Minute, func(ctx context.Context) error {
				_, err := cluster.Output(shared.Kube(ctx, "get", "serviceaccount", "default", "-n", name))
				return err
			})
		},
		// [kubectl:1.24] is kubectl from that version on.
		Condition: func(cond string) (bool, error) {
			least, ok := strings.CutPrefix(cond, "kubectl:1.")
			if !ok {
				return false, fmt.Errorf("unknown condition %q", cond)
			}
			want, err := strconv.Atoi(least)
			return minor >= want, err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"kubectl": func(ts *testscript.TestScript, neg bool, args []string) {
				finish(ts, neg, kube(ts, args), limit)
			},
			"clusterctl": func(ts *testscript.TestScript, neg bool, args []string) {
				cmd := shared.Ctl(context.Background(), args...)
				cmd.Dir = ts.MkAbs(".")
				finish(ts, neg, cmd, 3*time.Minute)
			},
			// machine NAME LINE runs a shell line as root on a machine.
			"machine": func(ts *testscript.TestScript, neg bool, args []string) {
				m := shared.Lab.Machine(args[0])
				if m == nil {
					ts.Fatalf("no machine %s", args[0])
				}
				finish(ts, neg, m.SSH(context.Background(), "root", strings.Join(args[1:], " ")), limit)
			},
			// lab LINE runs a shell line of this host in the lab's network; $KUBECTL is there.
			"lab": func(ts *testscript.TestScript, neg bool, args []string) {
				cmd := shared.Lab.Command(context.Background(), "sh", "-c", strings.Join(args, " "))
				cmd.Dir = ts.MkAbs(".")
				cmd.Env = append(os.Environ(), "HOME="+shared.Lab.Home(), "KUBECONFIG="+shared.Kubeconfig(), "KUBECTL="+ts.Getenv("KUBECTL"), "NS="+ts.Getenv("NS"), "TERM=dumb", "BUNDLE="+shared.Bundle, "LAB="+shared.Lab.Name)
				finish(ts, neg, cmd, limit)
			},
			// eventually kubectl|machine|lab ARGS… repeats until it succeeds and, after --, its
			// output has a text: eventually kubectl get pods -- Running
			"eventually": eventually,
		},
	})
}

// nameImage puts the reference of the image that the nodes have, and the script's
// namespace, into its files.
func nameImage(dir, namespace string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	image, err := cluster.Output(shared.Kube(ctx, "get", "deployment", "web", "-n", "shop", "-o", "jsonpath={.spec.template.spec.containers[0].image}"))
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(strings.NewReplacer("@IMAGE@", image, "@NS@", namespace).Replace(string(text))), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// limit is how long one command may take.
const limit = time.Minute

func kube(ts *testscript.TestScript, args []string) *exec.Cmd {
	cmd := shared.Lab.Command(context.Background(), ts.Getenv("KUBECTL"), append([]string{"-n", ts.Getenv("NS")}, args...)...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = append(os.Environ(), "HOME="+shared.Lab.Home(), "KUBECONFIG="+shared.Kubeconfig(), "KUBE_EDITOR="+ts.Getenv("KUBE_EDITOR"))
	return cmd
}

// finish runs a command whose output the script then looks at as stdout and stderr.
func finish(ts *testscript.TestScript, neg bool, cmd *exec.Cmd, limit time.Duration) {
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	timer := time.AfterFunc(limit, func() {
		if cmd.Process != nil {
			_ = cmd.Process.Kill()
		}
	})
	err := cmd.Run()
	timer.Stop()
	fmt.Fprint(ts.Stdout(), stdout.String())
	fmt.Fprint(ts.Stderr(), stderr.String())
	var exit *exec.ExitError
	switch {
	case err != nil && !errors.As(err, &exit):
		ts.Fatalf("%s: %v", cmd, err)
	case err != nil && !neg:
		ts.Fatalf("unexpected failure: %v", err)
	case err == nil && neg:
		ts.Fatalf("unexpected success")
	}
}

func eventually(ts *testscript.TestScript, neg bool, args []string) {
	want := ""
	for i, a := range args {
		if a == "--" && i == len(args)-2 {
			want, args = args[i+1], args[:i]
			break
		}
	}
	var last string
	err := cluster.Eventually(context.Background(), limit, func(ctx context.Context) error {
		var cmd *exec.Cmd
		switch args[0] {
		case "kubectl":
			cmd = kube(ts, args[1:])
		case "machine":
			cmd = shared.Lab.Machine(args[1]).SSH(ctx, "root", strings.Join(args[2:], " "))
		default:
			return fmt.Errorf("eventually knows kubectl and machine, not %s", args[0])
		}
		out, err := cmd.CombinedOutput()
		last = string(out)
		if err != nil {
			return err
		}
		if strings.Contains(last, want) == neg {
			return fmt.Errorf("the output does not fit %q", want)
		}
		return nil
	})
	fmt.Fprint(ts.Stdout(), last)
	if err != nil {
		ts.Fatalf("%v; last: %s", err, last)
	}
}
