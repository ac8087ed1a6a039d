package local

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// shimEnv makes a process of this test behave like a shim: it starts a child process, prints its process id, and stays.
const shimEnv = "CLUSTERCTL_TEST_SHIM"

func TestMain(m *testing.M) {
	if os.Getenv(shimEnv) == "" {
		os.Exit(m.Run())
	}
	child := exec.Command("sleep", "300")
	if err := child.Start(); err != nil {
		panic(err)
	}
	fmt.Println(child.Process.Pid)
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends
	_ = child.Process.Kill()
	_ = child.Wait()
}

// startShim starts a shim for the containerd at a socket. It returns the command and the process id of its container.
func startShim(t *testing.T, socket string) (cmd *exec.Cmd, child int) {
	program := filepath.Join(t.TempDir(), "containerd-shim-runc-v2")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, program); err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(program, "-namespace", criNamespace, "-id", "pod", "-address", socket)
	cmd.Env = append(os.Environ(), shimEnv+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if child, err = strconv.Atoi(strings.TrimSpace(line)); err != nil {
		t.Fatal(err)
	}
	return cmd, child
}

func TestLeftoverShimsAreKilledWithTheirDescendants(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "containerd.sock")
	first, a := startShim(t, socket)
	second, b := startShim(t, socket)
	other, c := startShim(t, socket+".other")
	found, below, err := findShims(socket)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{first.Process.Pid, second.Process.Pid} {
		if !slices.Contains(found, pid) {
			t.Errorf("%v has no %d", found, pid)
		}
	}
	for _, pid := range []int{a, b} {
		if !slices.Contains(below, pid) {
			t.Errorf("%v has no %d", below, pid)
		}
	}
	if len(found) != 2 || len(below) != 2 || slices.Contains(below, c) {
		t.Fatalf("shims %v with %v below, and not those of another containerd: %d with %d", found, below,
			other.Process.Pid, c)
	}
	if err := killProcesses(append(below, found...)); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for len(found) > 0 {
		if time.Now().After(deadline) {
			t.Fatalf("%v stay", found)
		}
		if found, _, err = findShims(socket); err != nil {
			t.Fatal(err)
		}
	}
	if err := killProcesses([]int{first.Process.Pid}); err != nil {
		t.Errorf("to end what has ended: %v", err)
	}
}

func TestProcessesWithAnyNameAreParsed(t *testing.T) {
	for text, want := range map[string]process{
		"7 (sleep) S 3 7 7 0":        {7, 3},
		"8 (a) b (c) R 4 7 7 0":      {8, 4},
		"9 (gone) Z 3 7 7 0":         {},
		"":                           {},
		"10 (cut":                    {},
		"11 (cut) S":                 {},
		"twelve (not a number) S 1 ": {0, 1},
	} {
		got, ok := parseStat(text)
		if got != want && ok {
			t.Errorf("%q: %v", text, got)
		}
		if ok != (want.pid > 0) {
			t.Errorf("%q: %t", text, ok)
		}
	}
}
