package machines

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// rootFSScript is a separate file so that make demo can run it while this program is being built.
//
//go:embed rootfs.sh
var rootFSScript []byte

// rootFS returns the directory of the machines' common root, and builds it if it does not exist.
func rootFS(ctx context.Context, log io.Writer) (string, error) {
	folder, err := os.MkdirTemp("", "clusterctl-lab")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(folder)
	script := filepath.Join(folder, "rootfs.sh")
	if err := os.WriteFile(script, rootFSScript, 0o600); err != nil {
		return "", err
	}
	var dir, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "sh", script)
	cmd.Stdout, cmd.Stderr = &dir, io.MultiWriter(&stderr, log)
	// ctx ends the whole process group, so that mmdebstrap does not keep running.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build the root file system: %w: %s", err, tail(stderr.String(), 1000))
	}
	return strings.TrimSpace(dir.String()), nil
}

func tail(s string, n int) string {
	if len(s) > n {
		return s[len(s)-n:]
	}
	return s
}
