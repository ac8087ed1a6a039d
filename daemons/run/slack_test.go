package run

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// init locks TestMain to the process's first thread, as the main function of a daemon does.
func init() { runtime.LockOSThread() }

func TestMain(m *testing.M) {
	switch os.Getenv("CLUSTERCTL_SLACKEN") {
	case "first thread":
		fmt.Printf("process %d has %s, and signal %d when its parent ends\n", os.Getpid(), currentSlack(),
			deathSignal())
		if err := SetTimerSlack(); err != nil {
			fmt.Println(err)
		}
		return
	case "another thread":
		failed := make(chan error)
		// runs on another thread, because this goroutine is locked to the first
		go func() { failed <- SetTimerSlack() }()
		fmt.Println("answer:", <-failed)
		return
	}
	os.Exit(m.Run())
}

// deathSignal returns the signal that the kernel sends to the process when its parent ends, or -1 on failure.
func deathSignal() (signal int32) {
	_, _, errno := unix.Syscall(unix.SYS_PRCTL, unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&signal)), 0)
	if errno != 0 {
		return -1
	}
	return signal
}

// runWithSlack starts this test's binary with a slack, and returns what it prints.
func runWithSlack(t *testing.T, thread string, with time.Duration) []string {
	t.Helper()
	runtime.LockOSThread() // the process inherits the slack of this thread
	defer runtime.UnlockOSThread()
	before := currentSlack()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(with), 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "CLUSTERCTL_SLACKEN="+thread)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(before), 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

func TestTimerSlackIsSet(t *testing.T) {
	// The process executes itself once. It keeps its process id and still ends with its parent.
	messages := runWithSlack(t, "first thread", defaultSlack)
	if len(messages) != 2 || !strings.HasSuffix(messages[0], " has 50µs, and signal 9 when its parent ends") ||
		messages[1] != strings.Replace(messages[0], "50µs", "4ms", 1) {
		t.Errorf("a process says %q", messages)
	}
	// A slack that the unit set stays.
	if lines := runWithSlack(t, "first thread", time.Millisecond); len(lines) != 1 ||
		!strings.Contains(lines[0], " has 1ms, ") {
		t.Errorf("a process whose slack is set says %q", lines)
	}
}

// After execve on another thread, a process is briefly a zombie and no longer ends with its parent.
func TestTheProgramIsExecutedAgainOnlyOnTheFirstThread(t *testing.T) {
	others := runWithSlack(t, "another thread", defaultSlack)
	if len(others) != 1 || !strings.Contains(others[0], "not the first thread") {
		t.Errorf("the process printed %q", others)
	}
}
