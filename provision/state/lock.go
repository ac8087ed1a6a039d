package state

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Times of the lock: who holds it says so every beat, and who has not for a lease has lost it.
const (
	lease = 30 * time.Second
	beat  = 5 * time.Second
)

// ErrLocked is that another run holds the lock.
var ErrLocked = errors.New("another run is under way")

type holder struct {
	Who     string    `json:"who"`
	Since   time.Time `json:"since"`
	Expires time.Time `json:"expires"`
}

// Lock is held until Release.
type Lock struct {
	path  string
	own   holder
	stop  chan struct{}
	wait  sync.WaitGroup
	clock func() time.Time
}

// Acquire takes the folder's lock, waiting for as long as ctx lasts when another
// run holds it.
func Acquire(ctx context.Context, dir, who string) (*Lock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the state's folder: %w", err)
	}
	l := &Lock{path: filepath.Join(dir, "lock.json"), stop: make(chan struct{}), clock: time.Now}
	l.own = holder{Who: who, Since: l.clock().UTC()}
	for {
		other, err := l.try()
		if err == nil {
			l.wait.Add(1)
			go l.keep()
			return l, nil
		}
		if !errors.Is(err, ErrLocked) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %s, since %s. It ends by itself at %s unless it goes on; -lock-timeout waits for it",
				ErrLocked, other.Who, other.Since.Format(time.TimeOnly), other.Expires.Format(time.TimeOnly))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// try makes the lock's file, which only one can, or takes over an expired one.
func (l *Lock) try() (holder, error) {
	l.own.Expires = l.clock().Add(lease).UTC()
	text, err := json.Marshal(l.own)
	if err != nil {
		return holder{}, err
	}
	f, err := os.CreateTemp(filepath.Dir(l.path), ".lock-*")
	if err != nil {
		return holder{}, fmt.Errorf("lock the state: %w", err)
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(text)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return holder{}, fmt.Errorf("lock the state: %w", err)
	}
	err = os.Link(f.Name(), l.path)
	if err == nil {
		return holder{}, nil
	}
	if !errors.Is(err, fs.ErrExist) {
		return holder{}, fmt.Errorf("lock the state: %w", err)
	}
	var other holder
	if text, err := os.ReadFile(l.path); err != nil || json.Unmarshal(text, &other) != nil || l.clock().After(other.Expires) {
		l.clear(text, f.Name()+".expired")
		return other, ErrLocked
	}
	return other, ErrLocked
}

// clear moves an expired lock away, after which its taking may be tried again. Two may see it
// at once: one that finds that it has moved a new lock puts that back.
func (l *Lock) clear(expired []byte, aside string) {
	if os.Rename(l.path, aside) != nil {
		return
	}
	if now, err := os.ReadFile(aside); err == nil && !bytes.Equal(now, expired) {
		_ = os.Link(aside, l.path)
	}
	_ = os.Remove(aside)
}

func (l *Lock) keep() {
	defer l.wait.Done()
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-tick.C:
		}
		own := l.own
		own.Expires = l.clock().Add(lease).UTC()
		text, err := json.Marshal(own)
		if err != nil {
			continue
		}
		temporary := l.path + ".beat"
		if os.WriteFile(temporary, text, 0o600) == nil {
			_ = os.Rename(temporary, l.path)
		}
	}
}

// Release lets the lock go.
func (l *Lock) Release() error {
	close(l.stop)
	l.wait.Wait()
	return os.Remove(l.path)
}
