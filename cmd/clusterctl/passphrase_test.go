package main

import (
	"errors"
	"testing"
)

// If many machines use one key, the user types its passphrase once, and may mistype it twice.
func TestPassphrasesAreAskedOncePerKey(t *testing.T) {
	wrong := errors.New("wrong")
	typed := []string{"one", "two", "secret"}
	asked := 0
	p := &passphrasePrompt{passphrases: map[string][]byte{}, readTerminal: func(string) ([]byte, error) {
		asked++
		return []byte(typed[(asked-1)%len(typed)]), nil
	}}
	unlock := func(text []byte) error {
		if string(text) != "secret" {
			return wrong
		}
		return nil
	}
	for range 3 {
		if err := p.askPassphrase("/key", unlock); err != nil {
			t.Fatal(err)
		}
	}
	if asked != 3 {
		t.Errorf("asked %d times, want 3", asked)
	}
	if err := p.askPassphrase("/other", func([]byte) error { return wrong }); !errors.Is(err, wrong) || asked != 6 {
		t.Errorf("error %v after %d questions", err, asked)
	}
}

// A user who interrupts a run at the prompt is not asked for the key of the next machine.
func TestInterruptedPromptsAreNotRepeated(t *testing.T) {
	asked := 0
	p := &passphrasePrompt{passphrases: map[string][]byte{}, readTerminal: func(string) ([]byte, error) {
		asked++
		return nil, errApprovalInterrupted
	}}
	for _, key := range []string{"/key", "/other", "/key"} {
		if err := p.askPassphrase(key, func([]byte) error { return nil }); !errors.Is(err, errApprovalInterrupted) {
			t.Errorf("%s: %v", key, err)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times, want once", asked)
	}
}
