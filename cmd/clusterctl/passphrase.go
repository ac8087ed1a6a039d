package main

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/term"
)

// passphrases are asked for once per key and run, although many machines want the key at once.
var passphrases = &prompt{terminal: askTerminal, known: map[string][]byte{}}

// prompt asks for passphrases of keys.
type prompt struct {
	terminal func(question string) ([]byte, error)

	mu    sync.Mutex
	known map[string][]byte
}

// attempts is how often a passphrase may be wrong, as OpenSSH's NumberOfPasswordPrompts has it.
const attempts = 3

// ask gives a key's passphrase to try. One that worked is not asked for again; the last error is returned when none did.
func (p *prompt) ask(path string, try func([]byte) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ok := p.known[path]; ok {
		return try(known)
	}
	var err error
	for range attempts {
		text, asked := p.terminal(fmt.Sprintf("Passphrase for %s: ", path))
		if asked != nil {
			return asked
		}
		if err = try(text); err == nil {
			p.known[path] = text
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
	text, err := term.ReadPassword(int(tty.Fd()))
	_, _ = fmt.Fprintln(tty)
	return text, err
}
