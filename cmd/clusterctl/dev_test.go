package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The test holds the lock as a running cluster does.
func TestSecondDevelopmentClustersDoNotTouchTheDataOfARunningOne(t *testing.T) {
	data := t.TempDir()
	f, err := os.Create(filepath.Join(data, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(data, "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte("of the one that runs"), 0o600); err != nil {
		t.Fatal(err)
	}
	var output bytes.Buffer
	root := newRoot()
	root.SetArgs([]string{"dev", "--data", data})
	root.SetErr(&output)
	if code := runCommand(t.Context(), root); code != 1 ||
		!strings.Contains(output.String(), "another clusterctl dev uses "+data) {
		t.Errorf("exit code %d, and %q", code, output.String())
	}
	if got, err := os.ReadFile(kubeconfig); err != nil || string(got) != "of the one that runs" {
		t.Errorf("the kubeconfig of the running cluster became %q, %v", got, err)
	}
}

// The test reads the log that etcd writes when the disk is full.
func TestTheLastEtcdErrorIsReadFromItsLog(t *testing.T) {
	log := filepath.Join(t.TempDir(), "etcd.log")
	text := `{"level":"info","msg":"starting"}
{"level":"error","msg":"something else"}
{"level":"panic","msg":"failed to create WAL","error":"no space left on device","stacktrace":"long"}
panic: failed to create WAL

goroutine 1 [running]:
`
	if err := os.WriteFile(log, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, want := lastEtcdError(log), "failed to create WAL: no space left on device"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
