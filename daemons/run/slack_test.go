package run

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// started has a process of this test start with a slack, and returns what it says of itself.
func started(t *testing.T, with time.Duration) []string {
	t.Helper()
	runtime.LockOSThread() // whose slack the process begins with
	defer runtime.UnlockOSThread()
	was := slack()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(with), 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestADaemonIsWokenLessOften$")
	cmd.Env = append(os.Environ(), "CLUSTERCTL_SLACKEN=1")
	out, err := cmd.CombinedOutput()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(was), 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var said []string
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "process ") {
			said = append(said, strings.TrimSpace(line))
		}
	}
	return said
}

func TestADaemonIsWokenLessOften(t *testing.T) {
	if os.Getenv("CLUSTERCTL_SLACKEN") != "" {
		fmt.Printf("process %d has %s\n", os.Getpid(), slack())
		if err := Slacken(); err != nil {
			t.Fatal(err)
		}
		return
	}
	// It starts over once, as the same process.
	said := started(t, usual)
	if len(said) != 2 || !strings.HasSuffix(said[0], " has 50µs") || said[1] != strings.TrimSuffix(said[0], "50µs")+"4ms" {
		t.Errorf("a process says %q", said)
	}
	// What its unit says, stays.
	if said := started(t, time.Millisecond); len(said) != 1 || !strings.HasSuffix(said[0], " has 1ms") {
		t.Errorf("a process whose slack is set says %q", said)
	}
}
