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

// checkInterval is how often a file is checked.
const checkInterval = 5 * time.Second

// File is a value that is read from a file.
type File[T any] struct {
	description, path string
	parse             Parser[T]
	log               *slog.Logger

	value atomic.Pointer[T]

	mu         sync.Mutex
	digest     digest            // of the text that was read last
	namedFiles map[string]digest // files that the text names, as they were read
	lastError  error             // why the last text is not in use; nil if it is
	counts     reloadCounts
}

type digest = [sha256.Size]byte

// Parser converts a text to a value. It reads other files that the text names with other. Changes of those then count
// as changes of the text.
type Parser[T any] func(text []byte, other func(path string) ([]byte, error)) (T, error)

// Open reads the file at path with read, which is called again for each new text. what names the file in errors, for
// example "authentication configuration".
func Open[T any](what, path string, read Parser[T], log *slog.Logger) (*File[T], error) {
	f := &File[T]{description: what, path: path, parse: read, log: log}
	return f, f.readFile()
}

// Get returns the last valid value.
func (f *File[T]) Get() T { return *f.value.Load() }

// Reload reads the file if it has changed. It returns an error if its current content is not in use.
func (f *File[T]) Reload() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, failed := f.digest, f.lastError
	err := f.readFile()
	switch {
	case err == nil && (f.digest != before || failed != nil):
		f.counts.record("success")
		f.log.Info("a configuration has changed and is in use", "what", f.description, "file", f.path)
	case err != nil && (f.digest != before || failed == nil):
		f.counts.record("failure")
		f.log.Error("a configuration has changed and cannot be used; the former one stays in force", "what",
			f.description, "file", f.path, "err", err)
	}
	return err
}

// readFile reads the file, and uses its content if it is valid.
func (f *File[T]) readFile() error {
	text, err := os.ReadFile(f.path)
	if err != nil {
		f.lastError = fmt.Errorf("read the %s: %w", f.description, err)
		return f.lastError
	}
	now := map[string]digest{}
	for path := range f.namedFiles {
		other, _ := os.ReadFile(path) // the reading function reports the error
		now[path] = sha256.Sum256(other)
	}
	if combinedDigest(text, now) == f.digest && !errors.Is(f.lastError, os.ErrNotExist) {
		return f.lastError
	}
	f.namedFiles = map[string]digest{}
	value, err := f.parse(text, func(path string) ([]byte, error) {
		other, err := os.ReadFile(path)
		f.namedFiles[path] = sha256.Sum256(other)
		return other, err
	})
	f.digest = combinedDigest(text, f.namedFiles)
	if err != nil {
		f.lastError = fmt.Errorf("read the %s %s: %w", f.description, f.path, err)
		return f.lastError
	}
	f.value.Store(&value)
	f.lastError = nil
	return nil
}

// combinedDigest returns the digest of a text and of the files that it names.
func combinedDigest(text []byte, others map[string]digest) digest {
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
	tick := time.NewTicker(checkInterval)
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

// reloadCounts counts the reloads of a file, under upstream's names.
type reloadCounts struct {
	reloads *prometheus.CounterVec
	last    *prometheus.GaugeVec
}

func (c reloadCounts) record(status string) {
	if c.reloads != nil {
		c.reloads.WithLabelValues(status).Inc()
		c.last.WithLabelValues(status).SetToCurrentTime()
	}
}

// RegisterMetrics registers the metrics of reloads. prefix is upstream's, for example
// apiserver_authentication_config_controller.
func (f *File[T]) RegisterMetrics(prefix string, to prometheus.Registerer) error {
	c := reloadCounts{
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
