package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"clusterctl/tests/lab/cluster"
	"clusterctl/tests/lab/machines"
)

// commandTimeout is the longest time for one command.
const commandTimeout = 2 * time.Minute

// The demo is started as make demo does it, under a different name, and each command that it prints is run as printed.
func TestPrintedCommandsWork(t *testing.T) {
	bundle, err := cluster.Bundle()
	if err != nil {
		t.Fatal(err)
	}
	root, err := cluster.Root()
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("try-%d", os.Getpid())
	shell := func(line string) (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
		defer cancel()
		cmd := exec.CommandContext(ctx, "bash", "-c", line)
		cmd.Dir, cmd.WaitDelay = root, time.Second
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	demo := filepath.Join(bundle, "demo") + " -name " + name
	t.Cleanup(func() {
		if out, err := shell(demo + " down"); err != nil {
			t.Errorf("demo down: %v\n%s", err, out)
		}
	})
	printed, err := shell(demo + " up")
	if err != nil {
		t.Fatalf("demo up: %v\n%s", err, printed)
	}
	_, printed, ok := strings.Cut(printed, "\n== Try:\n")
	if !ok {
		t.Fatalf("demo up does not say what to try:\n%s", printed)
	}
	lines := regexp.MustCompile(`(?m)^  (.*?) +# .*$`).FindAllStringSubmatch(printed, -1)
	if len(lines) == 0 {
		t.Fatalf("no commands in what demo up prints:\n%s", printed)
	}
	list := exampleCommands(strings.TrimSuffix(lines[0][1], " exec clusterctl status"),
		strings.Contains(printed, "exec kubectl"))
	if len(lines) != len(list) {
		t.Fatalf("demo up prints %d commands, and the list has %d: build it with make demo-tools", len(lines),
			len(list))
	}
	awaitIdleMemory(t, name)
	for i, command := range list {
		if lines[i][1] != command.line {
			t.Fatalf("demo up prints %q, and the list has %q: build it with make demo-tools", lines[i][1], command.line)
		}
		if out, err := shell(lines[i][1]); err != nil || !regexp.MustCompile(command.want).MatchString(out) {
			t.Errorf("%s: %v, prints, where %q is expected:\n%s", command.line, err, command.want, out)
		}
	}
	if out, err := shell(demo + " up"); err == nil || !strings.Contains(out, "it is up already") {
		t.Errorf("demo up, once more: %v\n%s", err, out)
	}
	if _, err := shell(demo + " exec sh -c 'exit 3'"); err == nil || err.Error() != "exit status 3" {
		t.Errorf("a command that exits with 3 has demo exec end with %v", err)
	}
	if out, err := shell(demo + " ssh"); err == nil || !strings.Contains(out, "name a machine") {
		t.Errorf("demo ssh without a machine: %v\n%s", err, out)
	}
}

// maxAnonymous are the limits of the anonymous memory of idle daemons, in KiB: a quarter more than was measured.
var maxAnonymous = map[string]int{
	"etcd": 20_000, "kube-apiserver": 31_000, "kube-controller-manager": 23_000, "kube-scheduler": 12_500,
	"kube-dns":       11_600,
	"metrics-server": 12_000, "containerd": 26_000, "kubelet": 17_500, "kube-proxy": 10_900, "kube-network": 12_200,
}

// awaitIdleMemory waits until the anonymous memory of each daemon is below its limit. A daemon returns memory after
// half a minute without work.
func awaitIdleMemory(t *testing.T, name string) {
	t.Helper()
	lab, err := machines.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	measured := map[string]int{}
	err = cluster.Eventually(t.Context(), commandTimeout, func(ctx context.Context) error {
		var large []string
		for _, m := range lab.Machines {
			list, err := cluster.Memories(ctx, m)
			if err != nil {
				return err
			}
			for _, of := range list {
				measured[of.Unit] = of.Anonymous
				if most, ok := maxAnonymous[of.Unit]; !ok || of.Anonymous > most {
					large = append(large, fmt.Sprintf("%s of %s has %d KiB of %d", of.Unit, m.Name, of.Anonymous, most))
				}
			}
		}
		if len(large) > 0 {
			return errors.New(strings.Join(large, ", "))
		}
		return nil
	})
	if err != nil {
		t.Errorf("anonymous memory of idle daemons: %v", err)
	}
	for unit := range maxAnonymous {
		if measured[unit] == 0 {
			t.Errorf("%s was not measured", unit)
		}
	}
}

func TestCommandsDoNotNeedKubectl(t *testing.T) {
	for _, command := range exampleCommands("demo", false) {
		if strings.Contains(command.line, "kubectl") {
			t.Error(command.line)
		}
	}
}
