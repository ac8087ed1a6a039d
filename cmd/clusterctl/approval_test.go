package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// openTerminal opens both ends of a pseudoterminal: the user's and the program's.
func openTerminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	return person, program
}

func TestOnlyYesIsAccepted(t *testing.T) {
	for answer, want := range map[string]error{"yes\n": nil, "y\n": errNotApproved, "\n": errNotApproved,
		"no\n": errNotApproved} {
		person, program := openTerminal(t)
		if _, err := person.WriteString(answer); err != nil {
			t.Fatal(err)
		}
		if err := askApproval(t.Context(), io.Discard, program, false); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", answer, err, want)
		}
	}
}

func TestInterruptsEndTheQuestionAtOnce(t *testing.T) {
	_, program := openTerminal(t)
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan error, 1)
	go func() { answered <- askApproval(ctx, io.Discard, program, false) }()
	cancel()
	select {
	case err := <-answered:
		if !errors.Is(err, errApprovalInterrupted) {
			t.Errorf("got %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it waits")
	}
}
