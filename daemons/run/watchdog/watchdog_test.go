package watchdog

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

const period = 20 * time.Second

// runWatchdog runs a watchdog for some time, and returns the messages to systemd with their times.
func runWatchdog(t *testing.T, during time.Duration,
	live func(ctx context.Context, since time.Duration) error) (list []string) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), during)
		defer cancel()
		watch(ctx, period, func(message string) { list = append(list, time.Since(start).String()+" "+message) },
			func(ctx context.Context) error { return live(ctx, time.Since(start)) })
	})
	return list
}

func TestLiveProcessesNotifyTheWatchdog(t *testing.T) {
	got := runWatchdog(t, 18*time.Second, func(context.Context, time.Duration) error { return nil })
	if want := []string{"5s WATCHDOG=1\n", "10s WATCHDOG=1\n", "15s WATCHDOG=1\n"}; !slices.Equal(got, want) {
		t.Errorf("systemd hears %q", got)
	}
	stuck := func(context.Context, time.Duration) error { return errors.New("stuck") }
	if got := runWatchdog(t, 18*time.Second, stuck); len(got) > 0 {
		t.Errorf("of a process that is not live systemd hears %q", got)
	}
	hangs := func(ctx context.Context, _ time.Duration) error { <-ctx.Done(); time.Sleep(time.Hour); return nil }
	for _, message := range runWatchdog(t, 18*time.Second, hangs) {
		if at, what := parseMessage(t, message); at < time.Hour {
			t.Errorf("of a process that hangs systemd hears %q after %s", what, at)
		}
	}
}

// A process that is short of CPU is late by a little at first, then by more than the watchdog timeout.
func TestDelayedProcessesExtendTheTimeout(t *testing.T) {
	starved := func(_ context.Context, since time.Duration) error {
		switch {
		case since > 8*time.Second && since < 12*time.Second:
			time.Sleep(6 * time.Second)
		case since > 14*time.Second && since < 20*time.Second:
			time.Sleep(time.Minute)
		}
		return nil
	}
	got := runWatchdog(t, 5*time.Minute, starved)
	patience, last := period, time.Duration(0)
	var usual []string
	for _, message := range got {
		at, what := parseMessage(t, message)
		if at-last > patience {
			t.Errorf("systemd hears nothing for %s, and waits for %s", at-last, patience)
		}
		last = at
		switch what {
		case "WATCHDOG=1\nWATCHDOG_USEC=120000000":
			patience = 2 * time.Minute
		case "WATCHDOG=1\nWATCHDOG_USEC=20000000":
			patience, usual = period, append(usual, at.String())
		case "WATCHDOG=1\n":
		default:
			t.Errorf("systemd hears %q", message)
		}
	}
	if len(usual) != 1 || patience != period {
		t.Errorf("when the process runs in time again systemd waits for %s, said at %q", patience, usual)
	}
}

func parseMessage(t *testing.T, message string) (time.Duration, string) {
	t.Helper()
	i := slices.Index([]byte(message), ' ')
	at, err := time.ParseDuration(message[:i])
	if err != nil {
		t.Fatal(err)
	}
	return at, message[i+1:]
}
