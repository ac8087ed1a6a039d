package logs

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const sampleLog = `2030-01-01T00:00:00.000000001Z stdout F one
2030-01-01T00:00:01Z stderr F two
2030-01-01T00:00:02Z stdout P thr
2030-01-01T00:00:02Z stdout F ee
torn
2030-01-01T00:00:03Z stdout F four
`

func logFile(t *testing.T, text string) string {
	path := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// Proves S08.
func TestLogOptionsAreApplied(t *testing.T) {
	path := logFile(t, sampleLog)
	for _, c := range []struct {
		name string
		q    Options
		want string
	}{
		{"all", Options{Tail: -1, Limit: -1}, "one\ntwo\nthree\nfour\n"},
		{"tail", Options{Tail: 1, Limit: -1}, "four\n"},
		{"tail of more than there is", Options{Tail: 100, Limit: -1}, "one\ntwo\nthree\nfour\n"},
		{"none", Options{Tail: 0, Limit: -1}, ""},
		{"limit", Options{Tail: -1, Limit: 5}, "one\nt"},
		{"since", Options{Tail: -1, Limit: -1, Since: time.Date(2030, 1, 1, 0, 0, 2, 0, time.UTC)},
			"three\nfour\n"},
		{"one stream", Options{Tail: -1, Limit: -1, Stream: "stderr"}, "two\n"},
		{"times", Options{Tail: 1, Limit: -1, Timestamps: true}, "2030-01-01T00:00:03Z four\n"},
	} {
		var b bytes.Buffer
		if err := Dir(filepath.Dir(path)).Write(context.Background(), path, c.q, nil, &b); err != nil ||
			b.String() != c.want {
			t.Errorf("%s: got %q (%v), want %q", c.name, b.String(), err, c.want)
		}
	}
}

// syncBuffer is a buffer that can be read and written concurrently.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (g *syncBuffer) Write(b []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.b.Write(b)
}
func (g *syncBuffer) String() string { g.mu.Lock(); defer g.mu.Unlock(); return g.b.String() }

// Proves S08.
func TestFollowedLogContinuesAfterItsRotation(t *testing.T) {
	path := logFile(t, "2030-01-01T00:00:00Z stdout F one\n")
	var out syncBuffer
	var mu sync.Mutex
	isOver := false
	done := make(chan error, 1)
	go func() {
		done <- Dir(filepath.Dir(path)).Write(context.Background(), path,
			Options{Tail: -1, Limit: -1, Follow: true},
			func() bool { mu.Lock(); defer mu.Unlock(); return isOver }, &out)
	}()
	waitUntil(t, func() bool { return out.String() == "one\n" })
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("2030-01-01T00:00:00Z stdout F two\n"); err != nil {
		t.Fatal(err)
	}
	f.Close()
	waitUntil(t, func() bool { return out.String() == "one\ntwo\n" })
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("2030-01-01T00:00:00Z stdout F three\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, func() bool { return strings.HasSuffix(out.String(), "three\n") })
	mu.Lock()
	isOver = true
	mu.Unlock()
	if err := <-done; err != nil || out.String() != "one\ntwo\nthree\n" {
		t.Errorf("got %q, %v", out.String(), err)
	}
}

func waitUntil(t *testing.T, ok func() bool) {
	t.Helper()
	deadline, tick := time.After(10*time.Second), time.NewTicker(2*time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatal("timed out")
		case <-tick.C:
		}
	}
}

func FuzzLogLines(f *testing.F) {
	f.Add([]byte("2030-01-01T00:00:00Z stdout F one"))
	f.Add([]byte("  "))
	f.Fuzz(func(t *testing.T, line []byte) {
		if e, err := parseLine(line); err == nil && !bytes.HasSuffix(line, e.text) {
			t.Errorf("%q became %q", line, e.text)
		}
	})
}

// A container that may write to the log directory cannot read other files by replacing a log with a link.
// Proves S08.
func TestLogPathsCannotLeaveTheLogDirectory(t *testing.T) {
	root := t.TempDir()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(sampleLog), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(root, "d_p_u", "main"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"d_p_u/main/0.log": secret, "d_p_u/dir": filepath.Dir(secret)} {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(root, "d_p_u/main/1.log"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"d_p_u/main/0.log", "d_p_u/dir/secret", "d_p_u/main/1.log", "../" +
		filepath.Base(filepath.Dir(secret)) + "/secret"} {
		var b bytes.Buffer
		if err := Dir(root).Write(context.Background(), filepath.Join(root, name),
			Options{Tail: -1, Limit: -1}, nil,
			&b); err == nil ||
			b.Len() > 0 {
			t.Errorf("%s: got %q, %v", name, b.String(), err)
		}
	}
}
