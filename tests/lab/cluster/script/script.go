// Package script runs scripts of commands (testscript's) against a cluster on a lab: kubectl, clusterctl, shell
// commands on machines, and power cuts. Each script has its own namespace. The caller provides the cluster.
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
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"clusterctl/tests/lab/cluster"
)

// Run runs scripts against a cluster in parallel, with a kubectl of the bundle.
func Run(t *testing.T, c *cluster.Cluster, kubectl string, files ...string) {
	t.Helper()
	w := world{c}
	minorVersion := sync.OnceValues(func() (int, error) { return w.minorVersion(kubectl) })
	testscript.Run(t, testscript.Params{
		Files: files,
		Setup: func(env *testscript.Env) error { return w.setup(env, kubectl) },
		// [kubectl:1.24] is true for kubectl of that version or later.
		Condition: func(cond string) (bool, error) {
			least, ok := strings.CutPrefix(cond, "kubectl:1.")
			if !ok {
				return false, fmt.Errorf("unknown condition %q", cond)
			}
			want, err := strconv.Atoi(least)
			if err != nil {
				return false, err
			}
			minor, err := minorVersion()
			return minor >= want, err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"kubectl": func(ts *testscript.TestScript, neg bool,
				args []string) {
				runCommand(ts, neg, w.kube(ts, args), commandTimeout)
			},
			"clusterctl": func(ts *testscript.TestScript, neg bool, args []string) {
				cmd := c.Clusterctl(context.Background(), args...)
				cmd.Dir = ts.MkAbs(".")
				runCommand(ts, neg, cmd, 3*time.Minute)
			},
			// machine NAME LINE runs a shell command as root on a machine.
			"machine": func(ts *testscript.TestScript, neg bool, args []string) {
				cmd, err := w.machine(ts, args[0]).Command(context.Background(), strings.Join(args[1:], " "))
				ts.Check(err)
				runCommand(ts, neg, cmd, commandTimeout)
			},
			// power off|on NAME cuts a machine's power, or starts the machine again.
			"power": func(ts *testscript.TestScript, _ bool, args []string) {
				ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
				defer cancel()
				m := w.machine(ts, args[1])
				if args[0] == "off" {
					ts.Check(m.PowerCut(ctx))
				} else {
					ts.Check(m.Start(ctx))
				}
			},
			// lab LINE runs a shell command of this host in the lab's network. $KUBECTL is set.
			"lab": func(ts *testscript.TestScript, neg bool,
				args []string) {
				runCommand(ts, neg, w.shell(ts, args), commandTimeout)
			},
			// eventually [DURATION] kubectl|machine|lab ARGS… repeats a command until it succeeds. With a text after
			// --, its output must also contain the text: eventually kubectl get pods -- Running. It fails after a
			// minute, or after DURATION.
			"eventually": w.eventually,
		},
	})
}

// Files returns the scripts of a directory in testdata.
func Files(t *testing.T, folder string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", folder, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts in %s: %v", folder, err)
	}
	return files
}

type world struct{ *cluster.Cluster }

// minorVersion returns the minor version of a kubectl of the bundle.
func (w world) minorVersion(kubectl string) (int, error) {
	out, err := exec.Command(filepath.Join(w.Bundle, kubectl), "version", "--client", "-o", "json").Output()
	var answer struct {
		ClientVersion struct{ GitVersion string }
	}
	if err == nil {
		err = json.Unmarshal(out, &answer)
	}
	_, minor, _ := strings.Cut(answer.ClientVersion.GitVersion, ".")
	minor, _, _ = strings.Cut(minor, ".")
	n, convErr := strconv.Atoi(minor)
	if err := errors.Join(err, convErr); err != nil {
		return 0, fmt.Errorf("ask %s for its version: %w", kubectl, err)
	}
	return n, nil
}

// setup gives a script its own namespace, so that scripts do not affect each other.
func (w world) setup(env *testscript.Env, kubectl string) error {
	name := strings.ToLower(strings.NewReplacer("_", "-", " ", "-").Replace(filepath.Base(env.WorkDir)))
	name = strings.Trim(strings.TrimPrefix(name, "script-")+"-"+strings.TrimPrefix(kubectl, "kubectl-"), "-")
	env.Setenv("NS", name)
	env.Setenv("KUBECTL", filepath.Join(w.Bundle, kubectl))
	env.Setenv("CLUSTER", w.Folder)
	env.Setenv("LAB", w.Lab.Name)
	env.Setenv("BUNDLE", w.Bundle)
	env.Setenv("TERM", "dumb")
	// Scripts restart the API server, sometimes several times in a row. The controllers' informers then back off for up
	// to a minute.
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	api, closeAPI, err := w.client()
	if err != nil {
		return err
	}
	defer closeAPI()
	image, err := testImage(ctx, api)
	if err != nil {
		return err
	}
	if err := replaceInFiles(env.WorkDir, strings.NewReplacer("@IMAGE@", image, "@NS@", name)); err != nil {
		return err
	}
	env.Defer(func() { w.deleteNamespace(name) })
	return createNamespace(ctx, api, name)
}

// replaceInFiles replaces text in the script's files.
func replaceInFiles(dir string, replacer *strings.Replacer) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(replacer.Replace(string(text))), 0o600); err != nil {
			return err
		}
	}
	return nil
}
