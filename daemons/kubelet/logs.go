package kubelet

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
	"k8s.io/apimachinery/pkg/api/resource"

	"clusterctl/daemons/kubelet/cri"
	"clusterctl/daemons/kubelet/pod"
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

// logOptions holds the parameters of a log request.
type logOptions struct {
	follow, timestamps bool
	since              time.Time
	tail, limit        int64 // below zero: no limit
	stream             string
}

// writeLog writes the requested part of the log at path, which is below root, to out. With follow, it continues in the
// next file after a rotation. It stops once ended reports that the container has ended and everything is read.
func writeLog(ctx context.Context, root, path string, q logOptions, ended func() bool, out io.Writer) error {
	file, err := openLog(root, path)
	if err != nil {
		return err
	}
	defer func() { file.Close() }()
	if q.tail >= 0 {
		at, err := tailOffset(file, q.tail)
		if err != nil {
			return err
		}
		if _, err := file.Seek(at, io.SeekStart); err != nil {
			return err
		}
	}
	var watcher *fsnotify.Watcher
	if q.follow {
		if watcher, err = fsnotify.NewWatcher(); err != nil {
			return fmt.Errorf("watch log: %w", err)
		}
		defer watcher.Close()
		if err := watcher.Add(filepath.Dir(path)); err != nil {
			return fmt.Errorf("watch log: %w", err)
		}
	}
	w := &logWriter{q: q, remaining: q.limit, out: out}
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
		if !q.follow {
			return nil
		}
		w.flush()
		if next, err := openLog(root, path); err == nil && !sameFile(file, next) {
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
	q         logOptions
	remaining int64
	out       io.Writer
	isMidLine bool // the last line written was incomplete
}

func (w *logWriter) write(line []byte) (done bool, err error) {
	e, err := parseLine(bytes.TrimSuffix(line, []byte{'\n'}))
	if err != nil {
		return false, nil // not in CRI format: a line torn by a crash
	}
	if e.at.Before(w.q.since) || w.q.stream != "" && w.q.stream != e.stream {
		return false, nil
	}
	var b []byte
	if w.q.timestamps && !w.isMidLine {
		b = append(append(b, e.stamp...), ' ')
	}
	b = append(b, e.text...)
	if w.isMidLine = e.partial; !e.partial {
		b = append(b, '\n')
	}
	if w.q.limit >= 0 {
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

// tailLog returns the end of a container's log as a termination message.
func (k *Kubelet) tailLog(path string, lines, limit int) string {
	b := &lastBytes{limit: limit}
	if err := writeLog(context.Background(), k.logRoot, path, logOptions{tail: int64(lines), limit: -1}, nil,
		b); err != nil {
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
	if over := len(l.text) - l.limit; over > 0 {
		l.text = append(l.text[:0], l.text[over:]...)
	}
	return len(b), nil
}

// rotateLogs renames logs that have grown too large, and has the runtime open new ones.
func (k *Kubelet) rotateLogs(ctx context.Context) {
	most, err := resource.ParseQuantity(k.file.ContainerLogMaxSize)
	if err != nil {
		k.env.Log.Error("logs are not rotated", "containerLogMaxSize", k.file.ContainerLogMaxSize, "error", err)
		return
	}
	for _, w := range k.allWorkers() {
		w.mu.Lock()
		p, containers := w.pod, w.containers
		w.mu.Unlock()
		for _, c := range containers {
			if c.State != pod.Running {
				continue
			}
			path := filepath.Join(cri.LogDir(k.logRoot, p), cri.LogPath(c.Name, c.Attempt))
			if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() || info.Size() < most.Value() {
				continue
			}
			if err := k.rotateLog(ctx, path, c.ID); err != nil {
				k.env.Log.Warn("rotate log", "path", path, "error", err)
			}
		}
	}
}

func (k *Kubelet) rotateLog(ctx context.Context, path, id string) error {
	return k.withLogRoot(func(root *os.Root) error {
		name := k.logName(path)
		old, err := logParts(root, name+".")
		if err != nil {
			return err
		}
		for len(old) > max(k.file.ContainerLogMaxFiles, 2)-2 {
			if err := root.Remove(old[0]); err != nil {
				return err
			}
			old = old[1:]
		}
		aside := name + "." + time.Now().UTC().Format("20060102-150405")
		if err := root.Rename(name, aside); err != nil {
			return err
		}
		if err := k.runtime.ReopenContainerLog(ctx, id); err != nil {
			return errors.Join(err, root.Rename(aside, name))
		}
		return nil
	})
}

// latestAttempt returns the newest attempt of a container, or the one before it if previous is set.
func latestAttempt(containers []pod.Container, name string, previous bool) (pod.Container, bool) {
	skip := previous
	for _, c := range containers {
		if c.Name != name || c.State == pod.Created {
			continue
		}
		if skip {
			skip = false
			continue
		}
		return c, true
	}
	return pod.Container{}, false
}
