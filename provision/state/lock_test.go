package state_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"clusterctl/provision/state"
)

const lockFolderEnv = "CLUSTERCTL_TEST_LOCK"

// TestHolder is the process that the next test kills. When it runs by itself, it takes and releases the lock.
func TestHolder(t *testing.T) {
	dir, held := os.Getenv(lockFolderEnv), true
	if dir == "" {
		dir, held = t.TempDir(), false
	}
	l, err := state.Acquire(t.Context(), dir, "holder")
	if err != nil {
		t.Fatal(err)
	}
	if held {
		fmt.Println("held")
		<-t.Context().Done()
	}
	if err := l.Release(); err != nil {
		t.Error(err)
	}
}

// After a run was killed, the next one takes the lock without waiting for its expiration.
// Proves P02.
func TestLocksOfKilledProcessesAreTakenOverAtOnce(t *testing.T) {
	dir := t.TempDir()
	c := exec.Command(os.Args[0], "-test.run=^TestHolder$")
	c.Env = append(os.Environ(), lockFolderEnv+"="+dir)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Errorf("the other process says %q", line)
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	start := time.Now()
	l, err := state.Acquire(t.Context(), dir, "next")
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	if l.TookOverFrom != "holder" {
		t.Errorf("taken over from %q", l.TookOverFrom)
	}
	if err := l.Release(); err != nil {
		t.Error(err)
	}
}
