package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"clusterctl/daemons/config"
)

// logFile is a file with one event per line. When it has grown too large, it is renamed with a timestamp, and a new one
// is begun. Old files are removed.
type logFile struct {
	path          string
	size, maxSize int64         // bytes
	maxAge        time.Duration // zero keeps files of any age
	maxBackups    int           // zero keeps all files
	now           func() time.Time

	file *os.File
	text bytes.Buffer
}

func openLog(cfg config.APIServer) (*logFile, error) {
	l := &logFile{
		path: cfg.AuditLogPath, maxSize: int64(cfg.AuditLogMaxSize) << 20, maxBackups: cfg.AuditLogMaxBackup,
		maxAge: time.Duration(cfg.AuditLogMaxAge) * 24 * time.Hour, now: time.Now,
	}
	if l.maxSize <= 0 {
		l.maxSize = 100 << 20
	}
	if l.path == "-" {
		l.file = os.Stdout
		return l, nil
	}
	return l, l.open()
}

func (l *logFile) open() error {
	if err := os.MkdirAll(filepath.Dir(l.path), 0o700); err != nil {
		return fmt.Errorf("open the audit log: %w", err)
	}
	file, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the audit log: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		_ = file.Close()
		return fmt.Errorf("open the audit log: %w", err)
	}
	l.file, l.size = file, info.Size()
	return nil
}

// Close closes the file.
func (l *logFile) Close() error {
	if l.file == nil || l.path == "-" {
		return nil
	}
	return l.file.Close()
}

func (l *logFile) write(_ context.Context, events []*auditv1.Event) error {
	l.text.Reset()
	to := json.NewEncoder(&l.text)
	to.SetEscapeHTML(false)
	for _, e := range events {
		if err := to.Encode(e); err != nil {
			return fmt.Errorf("encode an audit event: %w", err)
		}
	}
	if l.path != "-" {
		if l.file == nil || l.size > 0 && l.size+int64(l.text.Len()) > l.maxSize {
			if err := l.rotate(); err != nil {
				return err
			}
		}
	}
	n, err := l.file.Write(l.text.Bytes())
	l.size += int64(n)
	if cap(l.text.Bytes()) > 1<<20 {
		l.text = bytes.Buffer{}
	}
	if err != nil {
		return fmt.Errorf("write the audit log: %w", err)
	}
	return nil
}

// timestampLayout is the timestamp in the names of rotated files. The names sort by it.
const timestampLayout = "2006-01-02T15-04-05.000000"

func (l *logFile) rotate() error {
	if l.file != nil {
		_ = l.file.Close() // all writes have returned
		l.file = nil
		if err := os.Rename(l.path, l.prefix()+l.now().UTC().Format(timestampLayout)+
			filepath.Ext(l.path)); err != nil &&
			!errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("rotate the audit log: %w", err)
		}
	}
	if err := l.open(); err != nil {
		return err
	}
	return l.removeOld()
}

func (l *logFile) prefix() string { return strings.TrimSuffix(l.path, filepath.Ext(l.path)) + "-" }

// removeOld removes rotated files that are too old or too many.
func (l *logFile) removeOld() error {
	files, err := os.ReadDir(filepath.Dir(l.path))
	if err != nil {
		return fmt.Errorf("list old audit logs: %w", err)
	}
	slices.Reverse(files)
	var errs []error
	kept := 0
	for _, entry := range files {
		text, ok := strings.CutPrefix(entry.Name(), filepath.Base(l.prefix()))
		if !ok {
			continue
		}
		text = strings.TrimSuffix(text, filepath.Ext(l.path))
		at, err := time.Parse(timestampLayout, text)
		if err != nil {
			continue // not a rotated file
		}
		if kept++; l.maxBackups > 0 && kept > l.maxBackups || l.maxAge > 0 && l.now().Sub(at) > l.maxAge {
			if err := os.Remove(filepath.Join(filepath.Dir(l.path), entry.Name())); err != nil {
				errs = append(errs, fmt.Errorf("remove an old audit log: %w", err))
			}
		}
	}
	return errors.Join(errs...)
}
