package network

import (
	"context"
	"errors"
	"fmt"

	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
)

// TestMain runs the tests in a separate network namespace.
func TestMain(m *testing.M) {
	const inside = "NETWORK_TEST_INSIDE"
	if os.Getenv(inside) != "" {
		os.Exit(m.Run())
	}
	self := exec.Command("/proc/self/exe", os.Args[1:]...)
	self.Env = append(os.Environ(), inside+"=1")
	self.Stdin, self.Stdout, self.Stderr = os.Stdin, os.Stdout, os.Stderr
	self.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGTERM}
	var exit *exec.ExitError
	switch err := self.Run(); {
	case errors.As(err, &exit):
		os.Exit(exit.ExitCode())
	case err != nil:
		fmt.Fprintln(os.Stderr, "these tests need root, for a network namespace of their own:", err)
		os.Exit(1)
	}
}

// Masquerading is restored quickly after the packet filter was flushed.
// Proves S27.
func TestMasqueradingIsRestoredAfterAFlush(t *testing.T) {
	clusters := []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/48")}
	outward, err := newMasquerade(clusters, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := &packetFilters{log: slog.New(slog.DiscardHandler), clusters: clusters, masquerade: outward}
	if err := d.masquerade.setAnswerMarks(true); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	done := make(chan struct{})
	defer func() { cancel(); <-done }()
	go func() { defer close(done); d.restoreLoop(ctx, 5*time.Millisecond) }()
	look, err := newMasquerade(clusters, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := look.setAnswerMarks(true); err != nil {
		t.Fatal(err)
	}
	for _, flush := range []func(*nftables.Conn){
		func(c *nftables.Conn) { c.FlushRuleset() },
		func(c *nftables.Conn) {
			c.DelTable(&nftables.Table{Family: nftables.TableFamilyIPv6, Name: tableName})
		},
	} {
		c, err := nftables.New()
		if err != nil {
			t.Fatal(err)
		}
		flush(c)
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
		for {
			exists, err := look.isIntact(true)
			if err != nil || ctx.Err() != nil {
				t.Fatal("masquerading did not come back", err)
			}
			if exists {
				break
			}
		}
	}
}
