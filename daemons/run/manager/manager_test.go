package manager

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// listen starts a service manager.
func listen(t *testing.T) *net.UnixConn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	at, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { at.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return at
}

func read(t *testing.T, at *net.UnixConn) string {
	t.Helper()
	if err := at.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 100)
	n, err := at.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

// The watchdog kills a process that does not report. A process without free file descriptors can still report.
func TestMessagesAreSentWithoutFreeDescriptors(t *testing.T) {
	at := listen(t)
	if !IsAvailable() {
		t.Fatal("there is no service manager")
	}
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	few := syscall.Rlimit{Cur: 64, Max: before.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	}()
	for {
		f, err := os.Open(os.DevNull)
		if errors.Is(err, syscall.EMFILE) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
	}
	if err := Send(Alive); err != nil {
		t.Error(err)
	}
	if got := read(t, at); got != Alive {
		t.Errorf("the service manager reads %q", got)
	}
}

func TestTheSocketReachesARestartedManager(t *testing.T) {
	for range 2 {
		at := listen(t)
		if err := Send(Ready); err != nil {
			t.Error(err)
		}
		if got := read(t, at); got != Ready {
			t.Errorf("the service manager reads %q", got)
		}
		at.Close()
	}
}

func TestNothingIsSentWithoutAManager(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	if IsAvailable() || Send(Ready) != nil {
		t.Error("a service manager is taken to be there")
	}
}

func TestTheWatchdogAppliesToThisProcess(t *testing.T) {
	for _, c := range []struct {
		usec, pid string
		want      time.Duration
	}{{"", "", 0}, {"20000000", "", 20 * time.Second}, {"20000000", "1", 0}, {"x", "", 0}, {"-1", "", 0}} {
		t.Setenv("WATCHDOG_USEC", c.usec)
		t.Setenv("WATCHDOG_PID", c.pid)
		if got := Watchdog(); got != c.want {
			t.Errorf("WATCHDOG_USEC=%s WATCHDOG_PID=%s: %s, want %s", c.usec, c.pid, got, c.want)
		}
	}
}
