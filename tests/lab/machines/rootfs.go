package machines

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
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

// addFiles returns the lower directories of the machines' disks: base, and a directory with files above it.
func (l *Lab) addFiles(base string, files map[string]string) (string, error) {
	if len(files) == 0 {
		return base, nil
	}
	dir := filepath.Join(l.dir(), "files")
	for path, from := range files {
		from, err := filepath.EvalSymlinks(from)
		if err != nil {
			return "", fmt.Errorf("add %s to the machines: %w", path, err)
		}
		to := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return "", err
		}
		err = os.Link(from, to)
		if errors.Is(err, syscall.EXDEV) {
			err = copyFile(from, to)
		}
		if err != nil {
			return "", fmt.Errorf("add %s to the machines: %w", path, err)
		}
	}
	return dir + ":" + base, nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

func tail(s string, n int) string {
	if len(s) > n {
		return s[len(s)-n:]
	}
	return s
}
