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

// Times of the lock. Its holder renews it every beat, and loses it if it is not renewed for a lease.
const (
	leaseDuration = 30 * time.Second
	renewInterval = 5 * time.Second
	retryInterval = 100 * time.Millisecond
)

// ErrLocked reports that another run holds the lock.
var ErrLocked = errors.New("another run is under way")

// ErrLost reports that another run took over the lock, because this process did not renew it for a lease.
var ErrLost = errors.New("another run has taken the lock, since this one was not heard of for too long; it stops " +
	"here. Run again when the other has ended")

type holder struct {
	Operator string    `json:"who"`
	Since    time.Time `json:"since"`
	Expires  time.Time `json:"expires"`
	Process  process   `json:"process,omitzero"`
}

// isSame reports whether two entries belong to the same holder, perhaps at different beats.
func (h holder) isSame(o holder) bool {
	return h.Operator == o.Operator && h.Since.Equal(o.Since) && h.Process == o.Process
}

// Lock is a lock on the state. It is held until Release.
type Lock struct {
	// TookOverFrom names the holder whose dead process the lock was taken from; empty means that the lock was free.
	TookOverFrom string

	path     string
	own      holder
	stop     chan struct{}
	lost     chan struct{} // closed when another run has, or had, the lock
	markLost func()
	wait     sync.WaitGroup
	clock    func() time.Time

	mu        sync.Mutex
	renewedAt time.Time // when the lock was last renewed
}

// Acquire takes the lock of a directory. If another run holds it, Acquire waits until ctx ends.
func Acquire(ctx context.Context, dir, owner string) (*Lock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the state's folder: %w", err)
	}
	l := &Lock{
		path:  filepath.Join(dir, "lock.json"),
		stop:  make(chan struct{}),
		lost:  make(chan struct{}),
		clock: time.Now,
	}
	l.markLost = sync.OnceFunc(func() { close(l.lost) })
	l.own = holder{Operator: owner, Since: l.clock().UTC(), Process: thisProcess()}
	for {
		other, err := l.try()
		if err == nil {
			l.renewedAt = l.clock()
			l.wait.Add(1)
			go l.renewUntilStopped()
			return l, nil
		}
		if !errors.Is(err, ErrLocked) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf(
				"%w: %s, since %s. It ends by itself at %s unless it goes on; -lock-timeout waits for it", ErrLocked,
				other.Operator, other.Since.Format(time.TimeOnly), other.Expires.Format(time.TimeOnly))
		case <-time.After(retryInterval):
		}
	}
}

// try creates the lock file, which only one process can, or removes an expired one. It returns the present holder.
func (l *Lock) try() (holder, error) {
	l.own.Expires = l.clock().Add(leaseDuration).UTC()
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
	text, err = os.ReadFile(l.path)
	if err != nil {
		return other, ErrLocked // probably released just now
	}
	if json.Unmarshal(text, &other) != nil || l.isExpired(f) {
		l.removeExpired(text, f.Name()+".expired")
	} else if other.Process.isDead() {
		l.TookOverFrom = other.Operator
		l.removeExpired(text, f.Name()+".dead")
	}
	return other, ErrLocked
}

// isExpired reports whether the lock's holder has not renewed it for a lease. It compares modification times of files,
// because the computer that holds the directory sets them all. The clocks of two operators may differ by more than a
// lease.
func (l *Lock) isExpired(now *os.File) bool {
	beaten, err := os.Stat(l.path)
	if err != nil {
		return false
	}
	written, err := os.Stat(now.Name())
	return err == nil && written.ModTime().Sub(beaten.ModTime()) > leaseDuration
}

// removeExpired moves an expired lock away, so that it can be taken. Two processes may do so at once. A process that
// has moved a new lock puts it back.
func (l *Lock) removeExpired(expired []byte, aside string) {
	if os.Rename(l.path, aside) != nil {
		return
	}
	if now, err := os.ReadFile(aside); err == nil && !bytes.Equal(now, expired) {
		_ = os.Link(aside, l.path)
	}
	_ = os.Remove(aside)
}

func (l *Lock) renewUntilStopped() {
	defer l.wait.Done()
	tick := time.NewTicker(renewInterval)
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-tick.C:
		}
		if l.Held() != nil {
			return
		}
		own := l.own
		own.Expires = l.clock().Add(leaseDuration).UTC()
		text, err := json.Marshal(own)
		if err != nil {
			continue
		}
		temporary := l.path + ".beat"
		start := l.clock()
		if os.WriteFile(temporary, text, 0o600) == nil && os.Rename(temporary, l.path) == nil {
			l.mu.Lock()
			l.renewedAt = start
			l.mu.Unlock()
		}
	}
}

// Held returns ErrLost once another run has taken over the lock, even if that run has ended. This process may have been
// suspended meanwhile, and would act on outdated knowledge.
func (l *Lock) Held() error {
	var now holder
	text, err := os.ReadFile(l.path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && json.Unmarshal(text, &now) == nil && !now.isSame(l.own) {
		l.markLost()
		return ErrLost
	}
	if err == nil {
		return nil
	}
	// If the file cannot be read now, the lock counts as held for as long as no other run can have taken it.
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.clock().Sub(l.renewedAt) > leaseDuration-renewInterval {
		l.markLost()
		return ErrLost
	}
	return nil
}

// Lost returns a channel that is closed when another run has taken over the lock.
func (l *Lock) Lost() <-chan struct{} { return l.lost }

// Release releases the lock, unless another run has taken it over.
func (l *Lock) Release() error {
	close(l.stop)
	l.wait.Wait()
	if l.Held() != nil {
		return nil
	}
	return os.Remove(l.path)
}
