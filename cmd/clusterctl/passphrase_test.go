package main

import (
	"errors"
	"testing"
)

// If many machines use one key, the user types its passphrase once, and may mistype it twice.
func TestPassphrasesAreAskedOncePerKey(t *testing.T) {
	wrong := errors.New("wrong")
	typed := []string{"one", "two", "secret"}
	requests := 0
	p := &passphrasePrompt{passphrases: map[string][]byte{}, readTerminal: func(string) ([]byte, error) {
		requests++
		return []byte(typed[(requests-1)%len(typed)]), nil
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
	if requests != 3 {
		t.Errorf("asked %d times, want 3", requests)
	}
	if err := p.askPassphrase("/other", func([]byte) error { return wrong }); !errors.Is(err, wrong) || requests != 6 {
		t.Errorf("error %v after %d questions", err, requests)
	}
}

// A user who interrupts a run at the prompt is not asked for the key of the next machine.
func TestInterruptedPromptsAreNotRepeated(t *testing.T) {
	requests := 0
	p := &passphrasePrompt{passphrases: map[string][]byte{}, readTerminal: func(string) ([]byte, error) {
		requests++
		return nil, errApprovalInterrupted
	}}
	for _, key := range []string{"/key", "/other", "/key"} {
		if err := p.askPassphrase(key, func([]byte) error { return nil }); !errors.Is(err, errApprovalInterrupted) {
			t.Errorf("%s: %v", key, err)
		}
	}
	if requests != 1 {
		t.Errorf("asked %d times, want once", requests)
	}
}
