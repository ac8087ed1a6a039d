// Package script runs scripts of commands (testscript's) against a cluster on a lab: kubectl, clusterctl, shells on
// machines and their power. Each script has a namespace of its own. What the cluster is, whoever runs the scripts says.
package script

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
)

// image asks for the image of the test workload, which the cluster has as the Deployment web in the namespace shop.
var image = []string{
	"get",
	"deployment",
	"web",
	"-n",
	"shop",
	"-o",
	"jsonpath={.spec.template.spec.containers[0].image}",
}

// Run runs scripts against a cluster, with a kubectl of the bundle. They run beside each other.
func Run(t *testing.T, c *cluster.Cluster, kubectl string, files ...string) {
	t.Helper()
	minor := minorOf(t, c, kubectl)
	w := world{c}
	testscript.Run(t, testscript.Params{
		Files: files,
		Setup: func(env *testscript.Env) error { return w.setup(env, kubectl) },
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
			"kubectl": func(ts *testscript.TestScript, neg bool,
				args []string) {
				finish(ts, neg, w.kube(ts, args), limit)
			},
			"clusterctl": func(ts *testscript.TestScript, neg bool, args []string) {
				cmd := c.Ctl(context.Background(), args...)
				cmd.Dir = ts.MkAbs(".")
				finish(ts, neg, cmd, 3*time.Minute)
			},
			// machine NAME LINE runs a shell line as root on a machine.
			"machine": func(ts *testscript.TestScript, neg bool, args []string) {
				finish(
					ts,
					neg,
					w.machine(ts, args[0]).SSH(context.Background(), "root", strings.Join(args[1:], " ")),
					limit,
				)
			},
			// power off|on NAME cuts a machine's power, or boots it again.
			"power": func(ts *testscript.TestScript, _ bool, args []string) {
				ctx, cancel := context.WithTimeout(context.Background(), limit)
				defer cancel()
				m := w.machine(ts, args[1])
				if args[0] == "off" {
					ts.Check(m.PowerCut(ctx))
				} else {
					ts.Check(m.Start(ctx))
				}
			},
			// lab LINE runs a shell line of this host in the lab's network; $KUBECTL is there.
			"lab": func(ts *testscript.TestScript, neg bool,
				args []string) {
				finish(ts, neg, w.shell(ts, args), limit)
			},
			// eventually [DURATION] kubectl|machine|lab ARGS… repeats until it succeeds and, after --, its
			// output has a text: eventually kubectl get pods -- Running. It gives up after a minute, or DURATION.
			"eventually": w.eventually,
		},
	})
}

// Files are the scripts of a folder in testdata.
func Files(t *testing.T, folder string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", folder, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts in %s: %v", folder, err)
	}
	return files
}

// minorOf asks a kubectl which 1.x it is.
func minorOf(t *testing.T, c *cluster.Cluster, kubectl string) int {
	t.Helper()
	out, err := exec.Command(filepath.Join(c.Bundle, kubectl), "version", "--client", "-o", "json").Output()
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

type world struct{ *cluster.Cluster }

// setup gives a script a namespace of its own, which keeps it from meeting others.
func (w world) setup(env *testscript.Env, kubectl string) error {
	name := strings.ToLower(strings.NewReplacer("_", "-", " ", "-").Replace(filepath.Base(env.WorkDir)))
	name = strings.Trim(strings.TrimPrefix(name, "script-")+"-"+strings.TrimPrefix(kubectl, "kubectl-"), "-")
	env.Setenv("NS", name)
	env.Setenv("KUBECTL", filepath.Join(w.Bundle, kubectl))
	env.Setenv("CLUSTER", w.Folder)
	env.Setenv("LAB", w.Lab.Name)
	env.Setenv("BUNDLE", w.Bundle)
	env.Setenv("TERM", "dumb")
	if err := w.nameImage(env.WorkDir, name); err != nil {
		return err
	}
	env.Defer(func() {
		gone, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = w.Kube(gone, "delete", "namespace", name, "--ignore-not-found", "--wait=false").Run()
	})
	// Scripts restart the API server, some of them one right after the other: the controllers' informers then back off,
	// for up to a minute.
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	if _, err := cluster.Output(w.Kube(ctx, "create", "namespace", name)); err != nil {
		return err
	}
	return cluster.Eventually(ctx, time.Minute, func(ctx context.Context) error {
		_, err := cluster.Output(w.Kube(ctx, "get", "serviceaccount", "default", "-n", name))
		return err
	})
}

// nameImage puts the reference of the image that the nodes have, and the script's
// namespace, into its files.
func (w world) nameImage(dir, namespace string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	image, err := cluster.Output(w.Kube(ctx, image...))
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
		if err := os.WriteFile(file,
			[]byte(strings.NewReplacer("@IMAGE@", image, "@NS@", namespace).Replace(string(text))), 0o600); err != nil {
			return err
		}
	}
	return nil
}
