package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"clusterctl/tests/bench/configs"
	"clusterctl/tests/lab/cluster"
	"clusterctl/tests/programs/webimage"
)

const manyObjects = 2000

// runTimed runs a command to its end, and returns the elapsed time in seconds and the CPU seconds of the command and
// its children.
func runTimed(cmd *exec.Cmd) (out string, wall, cpu float64, err error) {
	start := time.Now()
	text, err := cmd.CombinedOutput()
	wall = time.Since(start).Seconds()
	if cmd.ProcessState != nil {
		cpu = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	}
	if err != nil {
		return string(text), wall, cpu, fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err,
			text[max(0, len(text)-4000):])
	}
	return string(text), wall, cpu, nil
}

var smallMachines = []string{"control=10.99.0.11", "a=10.99.0.21", "b=10.99.0.22"}

// boot starts machines and writes a configuration of examples and the demo's workload. It applies nothing.
func (b *bench) boot(ctx context.Context, name string, machines []string, files ...string) (*cluster.Cluster, error) {
	contents := map[string]string{}
	for _, source := range append(files, "tests/suites/demo/web.hcl") {
		text, err := os.ReadFile(filepath.Join(b.root, source))
		if err != nil {
			return nil, err
		}
		contents[filepath.Base(source)] = strings.ReplaceAll(string(text), `user = "admin"`,
			`user = "root"`) // root needs no password on a lab's machines
	}
	c, err := cluster.New(
		ctx,
		cluster.Options{
			Name:     fmt.Sprintf("%s-%d", name, os.Getpid()),
			Files:    contents,
			Log:      os.Stderr,
			Machines: machines,
		},
	)
	if err != nil {
		return nil, err
	}
	if err := webimage.Write(c.Bundle, filepath.Join(c.Folder, "images/web.tar")); err != nil {
		return nil, errors.Join(err, stopCluster(ctx, c))
	}
	return c, nil
}

func stopCluster(ctx context.Context, c *cluster.Cluster) error {
	return c.Lab.Down(context.WithoutCancel(ctx))
}

// measureCold measures from bare machines until the workload serves on a node.
func (b *bench) measureCold(ctx context.Context, c *cluster.Cluster, work, node string, mark float64) error {
	start := time.Now()
	_, _, cpu, err := runTimed(c.Clusterctl(ctx, "apply", "--auto-approve"))
	if err != nil {
		return err
	}
	text, err := cluster.Output(c.Clusterctl(ctx, "kubeconfig"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.Kubeconfig(), []byte(text), 0o600); err != nil {
		return err
	}
	if err := awaitServing(ctx, c, node); err != nil {
		return err
	}
	b.add(work, "s", mark, time.Since(start).Seconds())
	b.add(work, "CPU s of the tool", 0, cpu)
	return nil
}

// awaitServing waits until the workload answers through its Service on a node.
func awaitServing(ctx context.Context, c *cluster.Cluster, node string) error {
	address, err := cluster.Output(c.KubectlCommand(ctx, "get", "service", "web", "-n", "shop", "-o",
		"jsonpath={.spec.clusterIP}"))
	if err != nil {
		return err
	}
	return cluster.Eventually(ctx, time.Minute, func(ctx context.Context) error {
		_, err := c.Lab.Machine(node).Run(ctx, "curl -sf -m 1 http://"+address+"/")
		return err
	})
}

const coldSmall = "lab 1 + 2, bare to serving"

// measureSmall measures one control-plane machine and two nodes, and in the last run many objects.
func (b *bench) measureSmall(ctx context.Context) error {
	for i := range b.runs {
		if err := b.smallOnce(ctx, i == b.runs-1, i == b.runs-1); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) smallOnce(ctx context.Context, objects, keep bool) (err error) {
	c, err := b.boot(ctx, "bench-small", smallMachines, "examples/small/cluster.hcl")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopCluster(ctx, c)) }()
	if err := b.measureCold(ctx, c, coldSmall, "a", 6); err != nil {
		return err
	}
	if keep {
		if b.installed, err = copyInstalled(c); err != nil {
			return err
		}
	}
	if !objects {
		return nil
	}
	for i := range b.runs {
		created := manyObjects
		if i == 0 {
			created++ // and their namespace, which remains when they are deleted
		}
		if err := b.objects(ctx, c, created); err != nil {
			return err
		}
	}
	return nil
}

// objects creates, changes and deletes many objects. created is the number of objects that the first plan must report.
func (b *bench) objects(ctx context.Context, c *cluster.Cluster, created int) error {
	text := configs.ConfigMaps(manyObjects)
	for _, s := range []struct {
		work, text string
		mark       float64
		args       []string
		says       string
	}{
		{"2,000 objects, plan of new", text, 3, []string{"plan"}, fmt.Sprintf("objects: %d to create", created)},
		{"2,000 objects, apply", text, 5, []string{"apply", "--auto-approve"}, ""},
		{"2,000 objects, no-op apply", text, 1, []string{"apply", "--auto-approve"}, "No changes"},
		{"2,000 objects, apply with one changed", strings.Replace(text, `n = "7"`, `n = "seven"`, 1), 1, []string{"apply", "--auto-approve"}, ""},
		{"2,000 objects, prune", "", 3, []string{"apply", "--auto-approve"}, ""},
	} {
		if err := c.Write("many.hcl", s.text); err != nil {
			return err
		}
		out, wall, cpu, err := runTimed(c.Clusterctl(ctx, s.args...))
		if err != nil {
			return err
		}
		if !strings.Contains(out, s.says) {
			return fmt.Errorf("%s does not say %q:\n%s", s.work, s.says, out[max(0, len(out)-2000):])
		}
		b.add(s.work, "s", s.mark, wall)
		b.add(s.work, "CPU s of the tool", 0, cpu)
	}
	left, err := cluster.Output(c.KubectlCommand(ctx, "get", "configmaps", "-n", "many", "-l",
		"app.kubernetes.io/managed-by=clusterctl", "-o", "name"))
	if err != nil {
		return err
	}
	if left != "" {
		return fmt.Errorf("after pruning there are still: %.200s", left)
	}
	return nil
}

// measureHA measures three control-plane machines and three nodes.
func (b *bench) measureHA(ctx context.Context) error {
	for range b.runs {
		if err := b.haOnce(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) haOnce(ctx context.Context) (err error) {
	c, err := b.boot(ctx, "bench-ha",
		[]string{"c1=10.99.0.11", "c2=10.99.0.12", "c3=10.99.0.13", "n1=10.99.0.21", "n2=10.99.0.22", "n3=10.99.0.23"},
		"examples/ha/cluster.hcl", "examples/ha/nodes.auto.clustervars")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopCluster(ctx, c)) }()
	return b.measureCold(ctx, c, "lab 3 + 3, bare to serving", "n1", 20)
}
