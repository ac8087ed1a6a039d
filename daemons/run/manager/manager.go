// Package manager sends notifications of this process to systemd: ready, alive, stopping, and the sockets to pass to
// the next process. Unlike go-systemd, it opens the notification socket only once, so that a process without free file
// descriptors can still report that it is alive.
package manager

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// Messages that systemd understands, see sd_notify(3).
const (
	Ready    = "READY=1"
	Alive    = "WATCHDOG=1"
	Stopping = "STOPPING=1"
)

// socket is the notification socket. It is not connected, so that messages also reach a service manager that was
// restarted.
var socket = sync.OnceValues(func() (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open a socket for the service manager: %w", err)
	}
	return fd, nil
})

// IsAvailable reports whether a service manager listens for notifications, and opens the socket for them. Call it early
// in the process, while file descriptors are free.
func IsAvailable() bool {
	if os.Getenv("NOTIFY_SOCKET") == "" {
		return false
	}
	_, err := socket()
	return err == nil
}

// Send sends a message, with file descriptors if there are any. Without a service manager it does nothing.
func Send(text string, files ...int) error {
	at := os.Getenv("NOTIFY_SOCKET")
	if at == "" {
		return nil
	}
	fd, err := socket()
	if err != nil {
		return err
	}
	var rights []byte
	if len(files) > 0 {
		rights = unix.UnixRights(files...)
	}
	for {
		err := unix.Sendmsg(fd, []byte(text), rights, &unix.SockaddrUnix{Name: at}, unix.MSG_NOSIGNAL)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("write to the service manager: %w", err)
		}
		return nil
	}
}

// Watchdog returns the interval within which the service manager expects an alive notification, or zero if it expects
// none.
func Watchdog() time.Duration {
	period, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return 0
	}
	return period
}
