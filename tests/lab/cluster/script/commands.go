package script

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"clusterctl/tests/lab/cluster"
	"clusterctl/tests/lab/machines"
)

// commandTimeout is how long one command may take.
const commandTimeout = time.Minute

func (w world) machine(ts *testscript.TestScript, name string) *machines.Machine {
	m := w.Lab.Machine(name)
	if m == nil {
		ts.Fatalf("no machine %s", name)
	}
	return m
}

func (w world) kube(ts *testscript.TestScript, args []string) *exec.Cmd {
	cmd := w.Lab.Command(context.Background(), ts.Getenv("KUBECTL"),
		append([]string{"-n", ts.Getenv("NS")}, args...)...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = append(os.Environ(), "HOME="+w.Lab.Home(), "KUBECONFIG="+w.Kubeconfig(),
		"KUBE_EDITOR="+ts.Getenv("KUBE_EDITOR"))
	return cmd
}

func (w world) shell(ts *testscript.TestScript, args []string) *exec.Cmd {
	cmd := w.Lab.Command(context.Background(), "sh", "-c", strings.Join(args, " "))
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = append(os.Environ(), "HOME="+w.Lab.Home(), "KUBECONFIG="+w.Kubeconfig(), "KUBECTL="+ts.Getenv("KUBECTL"),
		"NS="+ts.Getenv("NS"), "TERM=dumb", "BUNDLE="+w.Bundle, "LAB="+w.Lab.Name)
	return cmd
}

// runCommand runs a command and gives its output to the script as stdout and stderr.
func runCommand(ts *testscript.TestScript, neg bool, cmd *exec.Cmd, limit time.Duration) {
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

func (w world) eventually(ts *testscript.TestScript, neg bool, args []string) {
	within := commandTimeout
	if d, err := time.ParseDuration(args[0]); err == nil {
		within, args = d, args[1:]
	}
	want := ""
	for i, a := range args {
		if a == "--" && i == len(args)-2 {
			want, args = args[i+1], args[:i]
			break
		}
	}
	var last string
	err := cluster.Eventually(context.Background(), within, func(ctx context.Context) error {
		var cmd *exec.Cmd
		switch args[0] {
		case "kubectl":
			cmd = w.kube(ts, args[1:])
		case "lab":
			cmd = w.shell(ts, args[1:])
		case "machine":
			var err error
			if cmd, err = w.machine(ts, args[1]).Command(ctx, strings.Join(args[2:], " ")); err != nil {
				return err
			}
		default:
			return fmt.Errorf("eventually knows kubectl, lab and machine, not %s", args[0])
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
		there, _ := w.kube(ts,
			[]string{"get", "pods,replicasets.apps,events", "-o", "wide", "--sort-by=.metadata.creationTimestamp"}).
			CombinedOutput()
		ts.Logf("what is there in the namespace:\n%s", there)
		ts.Fatalf("%v; last: %s", err, last)
	}
}
