package run

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Slack is how late the system may wake a daemon. While there is work, the monitor of Go's runtime sleeps 20 microseconds at a
// time, and the system's own slack of 50 makes that thousands of times a second: in a server that is called all the
// time and never for long that is an eighth of all it costs. Nothing in a daemon is in more of a hurry than this.
const Slack = 4 * time.Millisecond

// usual is the system's slack, where nobody has set another.
const usual = 50 * time.Microsecond

// Slacken starts the process over with Slack, under the same number, unless whoever started it has set one, as its
// unit does. It has to be there before the runtime's monitor is, whose thread has what the first one had. Slacken
// returns when that is so, or cannot be.
//
// The caller has to be on the process's first thread, where functions named init run: with execve(2) from another
// thread the process is a zombie without memory until its other threads have ended, and loses its parent-death signal.
func Slacken() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if slack() != usual {
		return nil
	}
	if unix.Gettid() != os.Getpid() {
		return errors.New("set the timer slack: this is not the first thread of the process")
	}
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(Slack), 0, 0, 0); err != nil {
		return fmt.Errorf("set the timer slack: %w", err)
	}
	if slack() != Slack {
		return errors.New("set the timer slack: it has not changed")
	}
	program, err := exec.LookPath(os.Args[0]) // which may be a link, whose name is the process's
	if err != nil {
		return fmt.Errorf("start over with another timer slack: %w", err)
	}
	if err := unix.Exec(program, os.Args, os.Environ()); err != nil {
		return fmt.Errorf("start over with another timer slack: %w", err)
	}
	return nil
}

func slack() time.Duration {
	n, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		return 0
	}
	return time.Duration(n)
}
