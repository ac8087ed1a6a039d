// Package quota tests the kubelet's volumes on real file systems with project quotas, with a kernel that supports them:
// Debian's user-mode Linux, which is an ordinary process and needs no privileges.
package quota

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

// createImage creates a file with a file system. It is a sparse file.
func createImage(t *testing.T, name string, mkfs ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 400<<20); err != nil {
		t.Fatal(err)
	}
	runCommand(t, nil, mkfs[0], append(mkfs[1:], path)...)
	return path
}

func TestQuotasLimitVolumes(t *testing.T) {
	ext4 := createImage(t, "ext4", "/usr/sbin/mkfs.ext4", "-q", "-O", "quota,project", "-E", "quotatype=prjquota")
	xfs := createImage(t, "xfs", "/usr/sbin/mkfs.xfs", "-q")
	inside := filepath.Join(t.TempDir(), "inside")
	runCommand(t, []string{"CGO_ENABLED=0"}, "go", "build", "-trimpath", "-buildvcs=false", "-tags", "grpcnotrace",
		"-ldflags", "-s -w", "-o", inside, "./inside")
	// The kernel passes unknown parameters to the init process as environment variables.
	out := runCommand(t, []string{"TMPDIR=" + t.TempDir()}, "/usr/bin/linux.uml", "mem=256M", "root=none",
		"rootfstype=hostfs", "rootflags=/", "ro", "init="+inside, "ubdb="+ext4, "ubdc="+xfs, "con=null",
		"con0=null,fd:1", "ssl=null", "quiet", "MODULES=/usr/lib/uml/modules")
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
