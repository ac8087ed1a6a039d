package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

var (
	errNotApproved         = errors.New("not approved; nothing was changed")
	errApprovalInterrupted = errors.New("interrupted; nothing was changed")
)

// askApproval asks for approval on the terminal. It returns nil if the user types yes.
func askApproval(ctx context.Context, out io.Writer, in *os.File, destroy bool) error {
	if !term.IsTerminal(int(in.Fd())) {
		return errors.New("standard input is not a terminal, so the plan cannot be approved: add -auto-approve, or " +
			"save the plan with plan -out and apply that")
	}
	question := "Do this?"
	if destroy {
		question = "Take everything away? There is no way back."
	}
	fmt.Fprintf(out, "\n%s Only 'yes' is taken: ", question)
	if err := waitReadable(ctx, in); err != nil {
		fmt.Fprintln(out)
		return err
	}
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	if strings.TrimSpace(line) != "yes" {
		return errNotApproved
	}
	return nil
}

// waitReadable waits until a line can be read, or until ctx ends, which a read would not notice.
func waitReadable(ctx context.Context, in *os.File) error {
	const look = 50 * time.Millisecond
	for {
		fds := []unix.PollFd{{Fd: int32(in.Fd()), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int(look.Milliseconds()))
		switch {
		case ctx.Err() != nil:
			return errApprovalInterrupted
		case err != nil && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("wait for the answer: %w", err)
		case n > 0:
			return nil
		}
	}
}
