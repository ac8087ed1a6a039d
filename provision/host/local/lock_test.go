package local

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"
)

func TestOneProcessHoldsTheLockAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "alone")
	end, err := lockFile(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := lockFile(short, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a second one is alone as well: %v", err)
	}
	got := make(chan error, 1)
	go func() {
		end, err := lockFile(t.Context(), path)
		if err == nil {
			end()
		}
		got <- err
	}()
	end()
	if err := <-got; err != nil {
		t.Fatal(err)
	}
}
