// Package manager tells systemd about this process: that it is ready, alive or about to stop, and which sockets to keep for the next
// one. The socket that carries the messages is opened once, so that a process that has no file descriptor left is still known to be
// alive.
package manager

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Messages that systemd understands, see sd_notify(3).
const (
	Ready    = "READY=1"
	Alive    = "WATCHDOG=1"
	Stopping = "STOPPING=1"
)

// socket is not connected, so that a service manager that was started again is reached as well.
var socket = sync.OnceValues(func() (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open a socket for the service manager: %w", err)
	}
	return fd, nil
})

// There reports whether a service manager listens, and opens the socket for it. It is called before the process has much to do.
func There() bool {
	if os.Getenv("NOTIFY_SOCKET") == "" {
		return false
	}
	_, err := socket()
	return err == nil
}

// Tell sends a message, with file descriptors if there are any. Without a service manager it does nothing.
func Tell(text string, files ...int) error {
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

// Watchdog returns how often the service manager wants to be told that the process is alive; zero when it does not ask for that.
func Watchdog() time.Duration {
	if pid := os.Getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0
	}
	n, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	if err != nil || n <= 0 {
		return 0
	}
	return time.Duration(n) * time.Microsecond
}
