package state_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"clusterctl/certs"
	"clusterctl/provision/state"
)

func authorities() (map[string]certs.Pair, error) {
	p, err := certs.NewCA("kubernetes", 0, time.Now())
	return map[string]certs.Pair{certs.ClusterCA: p}, err
}

// Private keys are never in plain text in a state file.
// Proves P04.
func TestSealedKeysAreRestored(t *testing.T) {
	for name, sealer := range map[string]state.Sealer{
		"key file":   {KeyFile: filepath.Join(t.TempDir(), "clusterctl", "age.key")},
		"passphrase": {Passphrase: "correct horse"},
	} {
		t.Run(name, func(t *testing.T) {
			store := state.Store{Dir: t.TempDir(), Sealer: sealer}
			if s, err := store.Read(); s != nil || err != nil {
				t.Fatalf("state before there is one: %v, %v", s, err)
			}
			s, err := state.New("home", authorities)
			if err != nil {
				t.Fatal(err)
			}
			if err := store.Write(s); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(filepath.Join(store.Dir, "state.json"))
			if err != nil || strings.Contains(string(text), "PRIVATE") {
				t.Errorf("keys are readable (%v)", err)
			}
			back, err := store.Read()
			if err != nil || !bytes.Equal(back.CA(certs.ClusterCA).Key, s.CA(certs.ClusterCA).Key) {
				t.Errorf("the key does not come back: %v", err)
			}
			store.Sealer = state.Sealer{Passphrase: "wrong"}
			if _, err := store.Read(); err == nil {
				t.Error("opened with another key")
			}
		})
	}
}

func TestTwoRunsCannotHoldTheLock(t *testing.T) {
	dir := t.TempDir()
	first, err := state.Acquire(t.Context(), dir, "first")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := state.Acquire(ctx, dir, "second"); !errors.Is(err, state.ErrLocked) ||
		!strings.Contains(err.Error(), "first") {
		t.Errorf("error %v does not name the holder", err)
	}
	if err := first.Release(); err != nil {
		t.Fatal(err)
	}
	third, err := state.Acquire(t.Context(), dir, "third")
	if err != nil {
		t.Fatalf("after release: %v", err)
	}
	if err := third.Release(); err != nil {
		t.Error(err)
	}
}

func TestLocksOfDeadRunsExpire(t *testing.T) {
	dir := t.TempDir()
	dead := `{"who":"dead","expires":"2020-01-01T00:00:00Z"}`
	if err := os.WriteFile(filepath.Join(dir, "lock.json"), []byte(dead), 0o600); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-31 * time.Second)
	if err := os.Chtimes(filepath.Join(dir, "lock.json"), long, long); err != nil {
		t.Fatal(err)
	}
	l, err := state.Acquire(t.Context(), dir, "next")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(); err != nil {
		t.Error(err)
	}
}

// Two operators share a folder, and their clocks differ. The operator whose clock is ahead does not take the lock of
// the other, whose recorded expiration has passed. A lock with an expiration far in the future is taken over when its
// file is no longer renewed.
// Proves P02.
func TestLocksDoNotDependOnTheClocksOfOperators(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "lock.json")
	if err := os.WriteFile(at, []byte(`{"who":"behind","expires":"2020-01-01T00:00:00Z"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := state.Acquire(ctx, dir, "ahead"); !errors.Is(err, state.ErrLocked) {
		t.Errorf("a lock that was written just now is taken over: %v", err)
	}
	if err := os.WriteFile(at, []byte(`{"who":"ahead","expires":"2999-01-01T00:00:00Z"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-31 * time.Second)
	if err := os.Chtimes(at, long, long); err != nil {
		t.Fatal(err)
	}
	l, err := state.Acquire(t.Context(), dir, "next")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(); err != nil {
		t.Error(err)
	}
}

// If the lock can no longer be renewed, because the folder is not available, it counts as lost by the time when another
// run may take it.
// Proves P02.
func TestLocksThatCannotBeRenewedAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		l, err := state.Acquire(t.Context(), dir, "cut off")
		if err != nil {
			t.Fatal(err)
		}
		at := filepath.Join(dir, "lock.json")
		if err := errors.Join(os.Remove(at), os.Mkdir(at, 0o700),
			os.WriteFile(filepath.Join(at, "x"), nil, 0o600)); err != nil {
			// The lock can be neither read nor written.
			t.Fatal(err)
		}
		if err := l.Held(); err != nil {
			t.Errorf("given up at once: %v", err)
		}
		select {
		case <-l.Lost():
		case <-time.After(time.Minute):
			t.Error("still held a minute later")
		}
		if err := l.Release(); err != nil {
			t.Error(err)
		}
	})
}

// A suspended process resumes after another run took the lock, worked and ended. It writes nothing.
// Proves P02.
func TestRunsThatLostTheLockWriteNothing(t *testing.T) {
	for name, takenOver := range map[string]bool{"another holds it": true, "another has held it": false} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			stopped, err := state.Acquire(t.Context(), dir, "stopped")
			if err != nil {
				t.Fatal(err)
			}
			store := state.Store{Dir: dir, Sealer: state.Sealer{Passphrase: "long enough to be one"}, Lock: stopped}
			s, err := state.New("small", authorities)
			if err != nil {
				t.Fatal(err)
			}
			if err := store.Write(s); err != nil {
				t.Fatalf("with the lock: %v", err)
			}
			lock := filepath.Join(dir, "lock.json")
			if err := os.Remove(lock); err != nil {
				t.Fatal(err)
			}
			other, err := state.Acquire(t.Context(), dir, "other")
			if err != nil {
				t.Fatal(err)
			}
			if !takenOver {
				if err := other.Release(); err != nil {
					t.Fatal(err)
				}
			}
			before, err := os.ReadFile(filepath.Join(dir, "state.json"))
			if err != nil {
				t.Fatal(err)
			}
			if err := store.Write(s); !errors.Is(err, state.ErrLost) {
				t.Errorf("a write without the lock: %v", err)
			}
			if err := store.Remove(); !errors.Is(err, state.ErrLost) {
				t.Errorf("a removal without the lock: %v", err)
			}
			if now, err := os.ReadFile(filepath.Join(dir, "state.json")); err != nil || !bytes.Equal(now, before) {
				t.Errorf("the state is another, %v", err)
			}
			select {
			case <-stopped.Lost():
			default:
				t.Error("the loss of the lock is not reported")
			}
			if err := stopped.Release(); err != nil {
				t.Errorf("release what is lost: %v", err)
			}
			if takenOver {
				if err := other.Held(); err != nil {
					t.Errorf("the other has it no more: %v", err)
				}
				if err := other.Release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
