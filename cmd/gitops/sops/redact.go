package sops

import (
	"encoding/base64"
	"encoding/json"
	"hash/maphash"
	"strings"
	"sync"
)

// Bounds of redaction.
const (
	minRedacted = 4         // bytes of the shortest value that is removed from messages
	window      = 12        // bytes of a part of a longer value that is removed
	maxRedacted = 256 << 10 // bytes of all values; with more, messages are hidden as a whole
	maxMessage  = 64 << 10  // bytes of a message that are redacted; the rest is left out
)

// mask replaces what is removed.
const mask = "(hidden)"

// redactor removes decrypted values from messages. Messages may contain parts of a value only, such as one line of it,
// or a value in quotes or base64. It is safe for concurrent use.
type redactor struct {
	seed maphash.Seed

	mu      sync.Mutex // guards the fields below
	short   map[string]bool
	windows map[uint64]struct{} // hashes of all parts of longer values
	bytes   int
}

func newRedactor() *redactor {
	return &redactor{seed: maphash.MakeSeed(), short: map[string]bool{}, windows: map[uint64]struct{}{}}
}

// add adds a value.
func (r *redactor) add(value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	variants := []string{value, base64.StdEncoding.EncodeToString([]byte(value))}
	if quoted, err := json.Marshal(value); err == nil {
		variants = append(variants, string(quoted[1:len(quoted)-1]))
	}
	for i, v := range variants {
		if i > 0 && v == value || len(v) < minRedacted || len(value) < minRedacted {
			continue
		}
		if r.bytes += len(v); r.bytes > maxRedacted {
			return
		}
		if len(v) < window {
			r.short[v] = true
		}
		for at := 0; at+window <= len(v); at++ {
			r.windows[maphash.String(r.seed, v[at:at+window])] = struct{}{}
		}
	}
}

// redact returns a text without the values.
func (r *redactor) redact(text string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.bytes == 0:
		return text
	case r.bytes > maxRedacted:
		return "the message is hidden, since the decrypted files are too large to remove their values from it"
	}
	if len(text) > maxMessage {
		text = text[:maxMessage]
	}
	hidden := make([]bool, len(text))
	cover := func(from, to int) {
		for i := from; i < to; i++ {
			hidden[i] = true
		}
	}
	for at := range len(text) {
		for n := minRedacted; n < window && at+n <= len(text); n++ {
			if r.short[text[at:at+n]] {
				cover(at, at+n)
			}
		}
		if at+window <= len(text) {
			if _, ok := r.windows[maphash.String(r.seed, text[at:at+window])]; ok {
				cover(at, at+window)
			}
		}
	}
	var out strings.Builder
	for i := range len(text) {
		switch {
		case !hidden[i]:
			out.WriteByte(text[i])
		case i == 0 || !hidden[i-1]:
			out.WriteString(mask)
		}
	}
	return strings.ToValidUTF8(out.String(), "")
}
