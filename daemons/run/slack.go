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

// TimerSlack is how late the system may wake up a daemon. While there is work, the monitor thread of Go's runtime
// sleeps 20 microseconds at a time. With the system's default slack of 50 microseconds, that means thousands of
// wake-ups per second. They make up an eighth of the CPU time of a server with many short requests. Nothing in a daemon
// needs more precision than this.
const TimerSlack = 4 * time.Millisecond

// defaultSlack is the system's default slack.
const defaultSlack = 50 * time.Microsecond

// SetTimerSlack sets the timer slack and executes the program again, in the same process, unless the slack was already
// set, for example by the unit. The slack must be set before the Go runtime starts its monitor thread, because threads
// inherit it from the first thread. SetTimerSlack returns only if the slack is already set, or with an error if it
// cannot be set.
//
// Call it on the process's first thread, where init functions run. After execve(2) on another thread, the process is
// briefly a zombie until its other threads have ended, and it loses its parent-death signal.
func SetTimerSlack() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if currentSlack() != defaultSlack {
		return nil
	}
	if unix.Gettid() != os.Getpid() {
		return errors.New("set the timer slack: this is not the first thread of the process")
	}
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(TimerSlack), 0, 0, 0); err != nil {
		return fmt.Errorf("set the timer slack: %w", err)
	}
	if currentSlack() != TimerSlack {
		return errors.New("set the timer slack: it has not changed")
	}
	program, err := exec.LookPath(os.Args[0]) // it may be a link, whose name is the process's name
	if err != nil {
		return fmt.Errorf("start over with another timer slack: %w", err)
	}
	if err := unix.Exec(program, os.Args, os.Environ()); err != nil {
		return fmt.Errorf("start over with another timer slack: %w", err)
	}
	return nil
}

func currentSlack() time.Duration {
	n, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		return 0
	}
	return time.Duration(n)
}
