// Package settings reads configuration files that may be replaced at run time. It reads a file again when it, or
// another file that it names, changes. If the new content is invalid, the last valid one stays in use. The package's
// users interpret the text and choose when to check for changes.
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

// lookEvery is how often a file is checked.
const lookEvery = 5 * time.Second

// File is a value that is read from a file.
type File[T any] struct {
	what, path string
	read       Reading[T]
	log        *slog.Logger

	value atomic.Pointer[T]

	mu     sync.Mutex
	digest digest            // of the text that was read last
	others map[string]digest // files that the text names, as they were read
	failed error             // why the last text is not in use; nil if it is
	counts counts
}

type digest = [sha256.Size]byte

// Reading converts a text to a value. It reads other files that the text names with other. Changes of those then count
// as changes of the text.
type Reading[T any] func(text []byte, other func(path string) ([]byte, error)) (T, error)

// Open reads the file at path with read, which is called again for each new text. what names the file in errors, for
// example "authentication configuration".
func Open[T any](what, path string, read Reading[T], log *slog.Logger) (*File[T], error) {
	f := &File[T]{what: what, path: path, read: read, log: log}
	return f, f.look()
}

// Get returns the last valid value.
func (f *File[T]) Get() T { return *f.value.Load() }

// Reload reads the file if it has changed. It returns an error if its current content is not in use.
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

// look reads the file, and uses its content if it is valid.
func (f *File[T]) look() error {
	text, err := os.ReadFile(f.path)
	if err != nil {
		f.failed = fmt.Errorf("read the %s: %w", f.what, err)
		return f.failed
	}
	now := map[string]digest{}
	for path := range f.others {
		other, _ := os.ReadFile(path) // the reading function reports the error
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

// together returns the digest of a text and of the files that it names.
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
			_ = f.Reload() // it is logged, and shown in the health check
		}
	}
}

// counts counts the reloads of a file, under upstream's names.
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

// Count registers the metrics of reloads. prefix is upstream's, for example apiserver_authentication_config_controller.
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
