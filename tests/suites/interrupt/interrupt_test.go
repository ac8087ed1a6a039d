// Package interrupt stops applies at random points, in every way that occurs in practice. It checks that the next apply
// converges, and that the state names nothing that does not exist. It runs on its own machines, which tests/lab/cluster
// creates.
package interrupt

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clusterctl/tests/lab/cluster"
	"clusterctl/tests/programs/webimage"
)

var (
	pointsPerApply = flag.Int("points", 1, "how many applies are interrupted")
	randomSeed     = flag.Uint64("seed", 0, "of what is chosen at random; zero means another one every time")
)

const (
	applyLimit = 8 * time.Minute
	diskSize   = 3 << 30
)

// world is the cluster, with its declared configuration.
type world struct {
	*cluster.Cluster
	t    *testing.T
	rand *rand.Rand
	declaredConfig
	// lineCounts is how many lines an apply of an operation prints. It is interrupted after one of them.
	lineCounts map[string]int
	lastOutput string // the output of the last apply
}

// An apply that is interrupted anywhere is completed by the next one.
// Proves P02.
func TestTheNextApplyConvergesAfterAnInterruption(t *testing.T) {
	if *randomSeed == 0 {
		*randomSeed = rand.Uint64()
	}
	fmt.Printf("seed %d: repeat with -args -points %d -seed %d\n", *randomSeed, *pointsPerApply, *randomSeed)
	w := startWorld(t)
	next := 0
	for done := 0; done < *pointsPerApply; {
		op := operations[next%len(operations)]
		next++
		fault := faults[w.rand.IntN(len(faults))]
		at := 1 + w.rand.IntN(w.lineCounts[op.name])
		op.apply(w)
		hit := w.interrupt(op, fault, at)
		if hit {
			done++
		}
		start := time.Now()
		w.converge(op)
		fmt.Printf("%d/%d %s, %s at line %d (hit %t): converged in %.1f s\n", done, *pointsPerApply, op.name,
			fault.name, at, hit, time.Since(start).Seconds())
		w.verify()
	}
}

func startWorld(t *testing.T) *world {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	c, err := cluster.New(
		ctx,
		cluster.Options{Name: fmt.Sprintf("interrupt-%d", os.Getpid()), Log: os.Stderr, Disk: diskSize,
			Machines: []string{"control=10.99.0.11", "a=10.99.0.21", "b=10.99.0.22"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Down(context.Background()); err != nil {
			t.Errorf("take the lab down: %v", err)
		}
	})
	w := &world{
		Cluster:    c,
		t:          t,
		rand:       rand.New(rand.NewPCG(*randomSeed, 0)),
		lineCounts: map[string]int{"create": 150, "change": 12, "remove": 20, "add": 60, "destroy": 40},
	}
	if err := os.MkdirAll(filepath.Join(c.Folder, "images"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := webimage.Write(c.Bundle, filepath.Join(c.Folder, "images/web.tar")); err != nil {
		t.Fatal(err)
	}
	return w
}

// interrupt runs an operation and causes a fault when it has printed a number of lines. It reports whether it printed
// that many.
func (w *world) interrupt(op operation, f fault, at int) bool {
	ctx, cancel := context.WithTimeout(w.t.Context(), applyLimit)
	defer cancel()
	cmd := w.Clusterctl(ctx, op.command(), "-auto-approve", "-json")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	n, hit := 0, false
	undo := func() error { return nil }
	scanner := bufio.NewScanner(out)
	scanner.Buffer(nil, 16<<20)
	for scanner.Scan() {
		if n++; n == at {
			hit = true
			if undo, err = f.cause(ctx, w, cmd); err != nil {
				w.t.Fatalf("%s: %v", f.name, err)
			}
		}
	}
	err = cmd.Wait()
	if undoErr := undo(); undoErr != nil {
		w.t.Fatalf("undo %s: %v", f.name, undoErr)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		w.t.Fatalf("%s with %s at line %d did not end: %v: %s", op.name, f.name, at, err, stderr.String())
	}
	if err != nil && !hit {
		w.t.Fatalf("%s failed before any fault: %s", op.name, stderr.String())
	}
	if err == nil {
		w.lineCounts[op.name] = max(n, 1)
	}
	return hit
}

// converge applies once more, and plans.
func (w *world) converge(op operation) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), applyLimit)
	defer cancel()
	apply := w.Clusterctl(ctx, op.command(), "-auto-approve")
	out, err := apply.CombinedOutput()
	w.lastOutput = string(out)
	if err != nil {
		w.t.Fatalf("the next %s does not converge: %v\n%s%s", op.command(), err, out, w.journalTails())
	}
	if op.name == "destroy" {
		return
	}
	plan, err := w.Clusterctl(ctx, "plan", "-detailed-exitcode").CombinedOutput()
	if err != nil || !strings.Contains(string(plan), "No changes") {
		w.t.Fatalf("a plan after %s says something else than No changes: %v\n%s\nthe apply before:\n%s", op.name, err,
			plan, out)
	}
	kubeconfig, err := cluster.Output(w.Clusterctl(ctx, "kubeconfig"))
	if err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(w.Kubeconfig(), []byte(kubeconfig), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// journalTails returns the ends of the units' journals on all machines, for debugging.
func (w *world) journalTails() string {
	var all strings.Builder
	for _, m := range w.Lab.Machines {
		out, _ := m.Run(w.t.Context(), "journalctl -n 15 --no-pager -q -p warning; df -h / | tail -1")
		fmt.Fprintf(&all, "--- %s\n%s", m.Name, out)
	}
	return all.String()
}
