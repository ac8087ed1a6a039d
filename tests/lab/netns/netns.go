// Package netns creates network namespaces, such as pods and machines have, for tests that use the kernel.
package netns

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Stack is a network namespace. It ends with its test.
type Stack struct{ file *os.File }

// New creates a network namespace that has only its loopback interface.
func New(t testing.TB) *Stack {
	t.Helper()
	s := &Stack{}
	if err := onThread(func() error {
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			s.file, err = os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.file.Close() })
	s.IP(t, "link set lo up")
	return s
}

// Current returns the network namespace of the test.
func Current(t testing.TB) *Stack {
	t.Helper()
	file, err := os.Open("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return &Stack{file}
}

// Do calls do on a thread in the network namespace. The thread ends afterwards.
func (s *Stack) Do(do func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(s.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return do()
	})
}

// onThread calls do on a thread that ends afterwards. It does not use the process's first thread, because that never
// ends, and /proc/self shows the networks of that thread.
func onThread(do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			err := onThread(do) // this thread stays locked meanwhile
			runtime.UnlockOSThread()
			done <- err
			return
		}
		done <- do()
	}()
	return <-done
}

// IP runs the command ip in the network namespace. words are its arguments in one string.
func (s *Stack) IP(t testing.TB, words string) {
	t.Helper()
	s.run(t, exec.Command("ip", strings.Fields(words)...))
}

// MoveLink moves an interface to another network namespace.
func (s *Stack) MoveLink(t testing.TB, link string, to *Stack) {
	t.Helper()
	cmd := exec.Command("ip", "link", "set", link, "netns", "/proc/self/fd/3")
	cmd.ExtraFiles = []*os.File{to.file}
	s.run(t, cmd)
}

func (s *Stack) run(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	if err := s.Do(func() error {
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %s", strings.Join(cmd.Args, " "), out)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// SetSysctl writes a sysctl of the network namespace by its dotted name.
func (s *Stack) SetSysctl(t testing.TB, name, value string) {
	t.Helper()
	if err := s.Do(func() error {
		return os.WriteFile("/proc/sys/"+strings.ReplaceAll(name, ".", "/"), []byte(value), 0o644)
	}); err != nil {
		t.Fatal(err)
	}
}
