// Package cgroup tests the kubelet's cgroups on a kernel with cgroup v2. The kernel is Debian's user-mode Linux, which
// is an ordinary process and needs no privileges.
package cgroup

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// runCommand runs a command to its end.
func runCommand(t *testing.T, env []string, name string, args ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return out
}

// The checks of tests/suites/cgroup/inside pass.
// Proves S25.
func TestCgroupsVersionTwo(t *testing.T) {
	inside := filepath.Join(t.TempDir(), "inside")
	runCommand(t, []string{"CGO_ENABLED=0"}, "go", "build", "-trimpath", "-buildvcs=false", "-tags", "grpcnotrace",
		"-ldflags", "-s -w", "-o", inside, "./inside")
	out := runCommand(t, []string{"TMPDIR=" + t.TempDir()}, "/usr/bin/linux.uml", "mem=512M", "root=none",
		"rootfstype=hostfs",
		"rootflags=/", "ro", "init="+inside,
		"con=null", "con0=null,fd:1", "ssl=null", "quiet")
	outcome := ""
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		switch word, rest, _ := strings.Cut(line, " "); word {
		case "ok":
			t.Log(line)
		case "FAIL":
			t.Error(line)
		case "outcome:":
			outcome = rest
		}
	}
	if outcome != "all well" {
		t.Errorf("the machine ended with %q\n%s", outcome, out)
	}
}
