// Package netns has networks of their own for tests that ask the kernel, as pods and machines have them.
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

// Stack is a network of its own. It ends with its test.
type Stack struct{ file *os.File }

// New makes a network in which nothing is but its loopback.
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

// Here is the network that the test itself is in.
func Here(t testing.TB) *Stack {
	t.Helper()
	file, err := os.Open("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return &Stack{file}
}

// Inside does something on a thread that is in the network, which ends with it.
func (s *Stack) Inside(do func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(s.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return do()
	})
}

// onThread does something on a thread that ends with it. The process's first thread is none: it never ends, and what
// /proc/self tells of networks is what that one sees.
func onThread(do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			err := onThread(do) // while this thread is held
			runtime.UnlockOSThread()
			done <- err
			return
		}
		done <- do()
	}()
	return <-done
}

// IP runs ip in the network with words that stand in one text.
func (s *Stack) IP(t testing.TB, words string) {
	t.Helper()
	s.run(t, exec.Command("ip", strings.Fields(words)...))
}

// Give gives an interface to another network.
func (s *Stack) Give(t testing.TB, link string, to *Stack) {
	t.Helper()
	cmd := exec.Command("ip", "link", "set", link, "netns", "/proc/self/fd/3")
	cmd.ExtraFiles = []*os.File{to.file}
	s.run(t, cmd)
}

func (s *Stack) run(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	if err := s.Inside(func() error {
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %s", strings.Join(cmd.Args, " "), out)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// Set writes a setting of the network's kernel, whose name has dots.
func (s *Stack) Set(t testing.TB, name, value string) {
	t.Helper()
	if err := s.Inside(func() error {
		return os.WriteFile("/proc/sys/"+strings.ReplaceAll(name, ".", "/"), []byte(value), 0o644)
	}); err != nil {
		t.Fatal(err)
	}
}
