package dev

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// programPath returns the path of a program that uses the cluster. It is from the built bundle, or is built from a
// package in a folder.
func programPath(t *testing.T, name, folder, pkg string) string {
	t.Helper()
	path := filepath.Join(programDir, name)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	path = filepath.Join(t.TempDir(), name)
	cmd := exec.Command("go", "build", "-tags", "grpcnotrace", "-o", path, pkg)
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	return path
}

// runProgram runs a program to its end and returns its output.
func runProgram(t *testing.T, path string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	home := filepath.Join(os.TempDir(), "clusterctl-dev-test-home")
	cmd.Env = []string{"KUBECONFIG=" + kubeconfigPath, "HOME=" + home, "PATH=" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s %s: %w\n%s", filepath.Base(path), strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// startProgram runs a program until the test ends, and shows its output if the test failed.
func startProgram(t *testing.T, path string, args ...string) {
	t.Helper()
	cmd := exec.Command(path, args...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.Env = []string{"KUBECONFIG=" + kubeconfigPath, "PATH=" + os.Getenv("PATH")}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt) // it may have ended
		forced := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		defer forced.Stop()
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Logf("%s: %v\n%s", filepath.Base(path), err, output.String())
		}
	})
}
