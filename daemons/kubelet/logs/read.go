package logs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// logLine is one line of a log in CRI's format: time, stream, tag, text.
type logLine struct {
	at      time.Time
	stamp   []byte
	stream  string
	partial bool
	text    []byte
}

func parseLine(line []byte) (logLine, error) {
	stamp, rest, ok := bytes.Cut(line, []byte{' '})
	stream, rest, ok2 := bytes.Cut(rest, []byte{' '})
	tag, text, ok3 := bytes.Cut(rest, []byte{' '})
	if !ok || !ok2 || !ok3 {
		return logLine{}, fmt.Errorf("log line %.40q is not in CRI's format", line)
	}
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return logLine{}, fmt.Errorf("log line %.40q: %w", line, err)
	}
	first, _, _ := bytes.Cut(tag, []byte{':'})
	return logLine{at, stamp, string(stream), bytes.Equal(first, []byte("P")), text}, nil
}

// Options holds the parameters of a log request.
type Options struct {
	Follow, Timestamps bool
	Since              time.Time
	Tail, Limit        int64 // below zero: no limit
	Stream             string
}

// Write writes the requested part of the log at path, which is below the directory, to out. With follow, it continues
// in the next file after a rotation. It stops once ended reports that the container has ended and everything is read.
func (d Dir) Write(ctx context.Context, path string, q Options, ended func() bool, out io.Writer) error {
	file, err := d.Open(path)
	if err != nil {
		return err
	}
	defer func() { file.Close() }()
	if q.Tail >= 0 {
		at, err := tailOffset(file, q.Tail)
		if err != nil {
			return err
		}
		if _, err := file.Seek(at, io.SeekStart); err != nil {
			return err
		}
	}
	var watcher *fsnotify.Watcher
	if q.Follow {
		if watcher, err = fsnotify.NewWatcher(); err != nil {
			return fmt.Errorf("watch log: %w", err)
		}
		defer watcher.Close()
		if err := watcher.Add(filepath.Dir(path)); err != nil {
			return fmt.Errorf("watch log: %w", err)
		}
	}
	w := &logWriter{q: q, remaining: q.Limit, out: out}
	lines := bufio.NewReaderSize(file, 64<<10)
	var pending []byte
	for {
		line, err := lines.ReadBytes('\n')
		pending = append(pending, line...)
		if err == nil {
			done, err := w.write(pending)
			if pending = pending[:0]; done || err != nil {
				return err
			}
			continue
		}
		if !errors.Is(err, io.EOF) {
			return fmt.Errorf("read log: %w", err)
		}
		if !q.Follow {
			return nil
		}
		w.flush()
		if next, err := d.Open(path); err == nil && !sameFile(file, next) {
			file.Close()
			file, lines = next, bufio.NewReaderSize(next, 64<<10)
			continue
		} else if err == nil {
			next.Close()
		}
		if len(pending) == 0 && ended() {
			// Read once more: output may have been written before the container ended and after the last read.
			if rest, err := lines.ReadBytes('\n'); err == nil {
				pending = append(pending, rest...)
				if done, err := w.write(pending); done || err != nil {
					return err
				}
				pending = pending[:0]
				continue
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-watcher.Events:
		case <-time.After(time.Second):
		}
	}
}

func sameFile(a, b *os.File) bool {
	x, err := a.Stat()
	y, err2 := b.Stat()
	return err == nil && err2 == nil && os.SameFile(x, y)
}

// logWriter writes the text of log lines, up to the requested limit.
type logWriter struct {
	q         Options
	remaining int64
	out       io.Writer
	isMidLine bool // the last line written was incomplete
}

func (w *logWriter) write(line []byte) (done bool, err error) {
	e, err := parseLine(bytes.TrimSuffix(line, []byte{'\n'}))
	if err != nil {
		return false, nil // not in CRI format: a line torn by a crash
	}
	if e.at.Before(w.q.Since) || w.q.Stream != "" && w.q.Stream != e.stream {
		return false, nil
	}
	var b []byte
	if w.q.Timestamps && !w.isMidLine {
		b = append(append(b, e.stamp...), ' ')
	}
	b = append(b, e.text...)
	if w.isMidLine = e.partial; !e.partial {
		b = append(b, '\n')
	}
	if w.q.Limit >= 0 {
		if int64(len(b)) >= w.remaining {
			b, done = b[:w.remaining], true
		}
		w.remaining -= int64(len(b))
	}
	_, err = w.out.Write(b)
	return done, err
}

func (w *logWriter) flush() {
	if f, ok := w.out.(interface{ Flush() }); ok {
		f.Flush()
	}
}

// tailOffset returns the offset at which the last n lines of a file begin.
func tailOffset(f *os.File, n int64) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	end := info.Size()
	if n == 0 {
		return end, nil
	}
	const block = 32 << 10
	buf := make([]byte, block)
	found := int64(0)
	for at := end; at > 0; {
		from := max(at-block, 0)
		part := buf[:at-from]
		if _, err := f.ReadAt(part, from); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		for i := len(part) - 1; i >= 0; i-- {
			if part[i] != '\n' || from+int64(i) == end-1 {
				continue
			}
			if found++; found == n {
				return from + int64(i) + 1, nil
			}
		}
		at = from
	}
	return 0, nil
}

// Tail returns the end of a log: at most lines lines and limit bytes. It returns "" if the log cannot be read.
func (d Dir) Tail(path string, lines, limit int) string {
	b := &lastBytes{limit: limit}
	q := Options{Tail: int64(lines), Limit: -1}
	if err := d.Write(context.Background(), path, q, nil, b); err != nil {
		return ""
	}
	return string(b.text)
}

// lastBytes keeps only the last limit bytes that are written, so that long lines do not consume memory.
type lastBytes struct {
	limit int
	text  []byte
}

func (l *lastBytes) Write(b []byte) (int, error) {
	l.text = append(l.text, b...)
	if excess := len(l.text) - l.limit; excess > 0 {
		l.text = append(l.text[:0], l.text[excess:]...)
	}
	return len(b), nil
}
