package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/term"
)

// passphrases asks for each passphrase once per run, although many machines need the key at the same time.
var passphrases = &passphrasePrompt{readTerminal: askTerminal, passphrases: map[string][]byte{}}

// passphrasePrompt asks for the passphrases of keys.
type passphrasePrompt struct {
	readTerminal func(question string) ([]byte, error)

	mu            sync.Mutex
	passphrases   map[string][]byte
	isInterrupted bool // the run is interrupted, so do not ask again
}

// maxAttempts is how often a passphrase may be wrong, as in OpenSSH's default of NumberOfPasswordPrompts.
const maxAttempts = 3

// askPassphrase calls try with a key's passphrase. It remembers one that worked. If none works, it returns the last
// error.
func (p *passphrasePrompt) askPassphrase(path string, try func([]byte) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if supported, ok := p.passphrases[path]; ok {
		return try(supported)
	}
	if p.isInterrupted {
		return errApprovalInterrupted
	}
	var err error
	for range maxAttempts {
		text, requested := p.readTerminal(fmt.Sprintf("Passphrase for %s: ", path))
		if requested != nil {
			p.isInterrupted = errors.Is(requested, errApprovalInterrupted)
			return requested
		}
		if err = try(text); err == nil {
			p.passphrases[path] = text
			return nil
		}
	}
	return err
}

func askTerminal(question string) ([]byte, error) {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil, errors.New("it needs its passphrase and there is no terminal to ask for it: add it to ssh-agent")
	}
	defer func() { _ = tty.Close() }()
	if _, err := fmt.Fprint(tty, question); err != nil {
		return nil, err
	}
	fd := int(tty.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return nil, err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(stop)
	type answer struct {
		text []byte
		err  error
	}
	typed := make(chan answer, 1)
	go func() { // the read cannot be cancelled and ends with the process
		text, err := term.ReadPassword(fd)
		typed <- answer{text, err}
	}()
	select {
	case a := <-typed:
		_, _ = fmt.Fprintln(tty)
		return a.text, a.err
	case <-stop:
		_ = term.Restore(fd, before) // turns the terminal's echo on again
		_, _ = fmt.Fprintln(tty)
		return nil, errApprovalInterrupted
	}
}
