package network

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"
	"time"
)

// Lost routes and MTU changes are reported. Changes that come with pods are not.
// Proves S27.
func TestChangesOfTheMachineAreReportedWithoutThoseOfPods(t *testing.T) {
	var none *netNamespace
	none.ip(t, "link", "set", "lo", "up")
	none.addPair(t, "wide", "other")
	none.ip(t, "link", "set", "other", "up")
	none.ip(t, "link", "set", "wide", "up")
	own := netip.MustParsePrefix("10.1.0.0/24")
	own6 := netip.MustParsePrefix("fd00:1::/64")
	ctx, cancel := context.WithCancel(t.Context())
	poked, done := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(done)
		watchMachine(
			ctx,
			slog.New(slog.DiscardHandler),
			func(a netip.Addr) bool { return own.Contains(a) || own6.Contains(a) },
			func() {
				select {
				case poked <- struct{}{}:
				default:
				}
			},
		)
	}()
	defer func() { cancel(); <-done }()
	heard := func() bool {
		select {
		case <-poked:
			return true
		case <-time.After(300 * time.Millisecond):
			return false
		}
	}
	follows := false
	for range 50 { // until the subscription is active
		none.ip(t, "addr", "replace", "192.0.2.9/24", "dev", "wide")
		none.ip(t, "addr", "del", "192.0.2.9/24", "dev", "wide")
		if follows = heard(); follows {
			break
		}
	}
	if !follows {
		t.Fatal("an address is not heard of")
	}
	for heard() {
	}
	none.ip(t, "link", "set", "wide", "mtu", "1400")
	if !heard() {
		t.Error("another largest packet is not heard of")
	}
	for heard() {
	}
	newNetNamespace(t).connectPod(t, 0, "10.1.0.9", "fd00:1::9")
	if heard() {
		t.Error("a pod was heard of")
	}
}
