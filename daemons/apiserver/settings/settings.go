// Package settings keeps what a configuration file says while the file may be replaced: it is
// read again when it changes, or another file does that it names, and what cannot be read leaves the
// last good one in force. What the text means is its user's business, as is when to look.
package settings

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// lookEvery is how often a file is looked at.
const lookEvery = 5 * time.Second

// File is a value that a file says.
type File[T any] struct {
	what, path string
	read       Reading[T]
	log        *slog.Logger

	value atomic.Pointer[T]

	mu     sync.Mutex
	digest digest            // of what was looked at last
	others map[string]digest // files that the text names, as they were read
	failed error             // why it is not the one in force; nil: it is
	counts counts
}

type digest = [sha256.Size]byte

// Reading makes a value of a text. Other files that the text names are read with other, so that their change is one
// of the text.
type Reading[T any] func(text []byte, other func(path string) ([]byte, error)) (T, error)

// Open reads the file at path with read, which is called again with each new text. what names
// it in errors, as "authentication configuration".
func Open[T any](what, path string, read Reading[T], log *slog.Logger) (*File[T], error) {
	f := &File[T]{what: what, path: path, read: read, log: log}
	return f, f.look()
}

// Get is what the file said when it last made sense.
func (f *File[T]) Get() T { return *f.value.Load() }

// Reload reads the file if it has changed, and says why what is there now is not in force.
func (f *File[T]) Reload() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, failed := f.digest, f.failed
	err := f.look()
	switch {
	case err == nil && (f.digest != before || failed != nil):
		f.counts.note("success")
		f.log.Info("a configuration has changed and is in use", "what", f.what, "file", f.path)
	case err != nil && (f.digest != before || failed == nil):
		f.counts.note("failure")
		f.log.Error(
			"a configuration has changed and cannot be used; the former one stays in force",
			"what",
			f.what,
			"file",
			f.path,
			"err",
			err,
		)
	}
	return err
}

// look takes in what the file says now.
func (f *File[T]) look() error {
	text, err := os.ReadFile(f.path)
	if err != nil {
		f.failed = fmt.Errorf("read the %s: %w", f.what, err)
		return f.failed
	}
	now := map[string]digest{}
	for path := range f.others {
		other, _ := os.ReadFile(path) // what cannot be read is told by who needs it
		now[path] = sha256.Sum256(other)
	}
	if together(text, now) == f.digest && !errors.Is(f.failed, os.ErrNotExist) {
		return f.failed
	}
	f.others = map[string]digest{}
	value, err := f.read(text, func(path string) ([]byte, error) {
		other, err := os.ReadFile(path)
		f.others[path] = sha256.Sum256(other)
		return other, err
	})
	f.digest = together(text, f.others)
	if err != nil {
		f.failed = fmt.Errorf("read the %s %s: %w", f.what, f.path, err)
		return f.failed
	}
	f.value.Store(&value)
	f.failed = nil
	return nil
}

// together is the digest of a text with what it names.
func together(text []byte, others map[string]digest) digest {
	all := sha256.New()
	fmt.Fprintf(all, "%d ", len(text))
	_, _ = all.Write(text)
	for _, path := range slices.Sorted(maps.Keys(others)) {
		fmt.Fprintf(all, " %d %s %x", len(path), path, others[path])
	}
	return digest(all.Sum(nil))
}

// Run reads the file whenever it has changed, until ctx ends.
func (f *File[T]) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			_ = f.Reload() // it is logged, and told to whoever asks for the server's health
		}
	}
}

// counts is how often a file was taken in anew, under upstream's names.
type counts struct {
	reloads *prometheus.CounterVec
	last    *prometheus.GaugeVec
}

func (c counts) note(status string) {
	if c.reloads != nil {
		c.reloads.WithLabelValues(status).Inc()
		c.last.WithLabelValues(status).SetToCurrentTime()
	}
}

// Count has reloads counted under names that begin as upstream's do, as
// apiserver_authentication_config_controller.
func (f *File[T]) Count(prefix string, to prometheus.Registerer) error {
	c := counts{
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "_automatic_reloads_total", Help: "Changes of the file, by whether they could be used.",
		}, []string{"status"}),
		last: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: prefix + "_automatic_reload_last_timestamp_seconds", Help: "When the file last changed, by whether " +
				"it could be used.",
		}, []string{"status"}),
	}
	f.mu.Lock()
	f.counts = c
	f.mu.Unlock()
	return errors.Join(to.Register(c.reloads), to.Register(c.last))
}
