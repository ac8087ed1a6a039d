package local

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"clusterctl/provision/host"
)

// Packets that are sent over the loopback are seen there, with the answers, under one number.
func TestTracesSeeTheirOwnPackets(t *testing.T) {
	open4, closed4 := startListener(t, "127.0.0.1:0"), unusedPort(t, "127.0.0.1:0")
	open6, closed6 := startListener(t, "[::1]:0"), unusedPort(t, "[::1]:0")
	for _, c := range []struct {
		name, protocol string
		to             netip.AddrPort
		outcome        string
		kinds          []string
	}{
		{"a connection", host.TCP, open4, host.OutcomeConnected, []string{host.KindRequest, host.KindAccepted}},
		{"a connection, IPv6", host.TCP, open6, host.OutcomeConnected, []string{host.KindRequest, host.KindAccepted}},
		{"a refused one", host.TCP, closed4, host.OutcomeRefused, []string{host.KindRequest, host.KindReset}},
		{"a refused one, IPv6", host.TCP, closed6, host.OutcomeRefused, []string{host.KindRequest, host.KindReset}},
		{"a datagram to nobody", host.UDP, closed4, host.OutcomeRefused,
			[]string{host.KindRequest, host.KindUnreachable}},
		{"a datagram to nobody, IPv6", host.UDP, closed6, host.OutcomeRefused,
			[]string{host.KindRequest, host.KindUnreachable}},
	} {
		t.Run(c.name, func(t *testing.T) {
			started := 0
			got, err := (&Host{}).Trace(t.Context(), host.Trace{
				Protocol: c.protocol, To: c.to, Ports: []uint16{c.to.Port()}, Mark: 0x5eed0001,
				Duration: 10 * time.Second,
				Send:     true, Routes: []netip.Addr{c.to.Addr()},
			}, func() { started++ })
			if err != nil {
				t.Fatal(err)
			}
			if got.Outcome != c.outcome || started != 1 {
				t.Errorf("outcome %s, %s", got.Outcome, got.Reason)
			}
			if got.Routes[c.to.Addr().String()] != "lo" {
				t.Errorf("routes: %v", got.Routes)
			}
			var kinds []string
			for _, s := range got.Sightings {
				if s.Number != got.Sightings[0].Number || s.Link != "lo" {
					t.Errorf("%+v", s)
				}
				if s.IsOutgoing {
					kinds = append(kinds, s.Kind)
				}
			}
			if len(kinds) != 2 || kinds[0] != c.kinds[0] || kinds[1] != c.kinds[1] ||
				got.Sightings[0].From != got.Local {
				t.Errorf("seen: %+v", got.Sightings)
			}
		})
	}
}

func TestImpossibleTracesAreRejected(t *testing.T) {
	for name, q := range map[string]host.Trace{
		"protocol": {Protocol: "SCTP", To: netip.MustParseAddrPort("127.0.0.1:1"), Duration: time.Second},
		"nowhere":  {Protocol: host.TCP, Duration: time.Second},
		"for ever": {Protocol: host.TCP, To: netip.MustParseAddrPort("127.0.0.1:1"), Duration: time.Hour},
	} {
		if _, err := (&Host{}).Trace(t.Context(), q, func() {}); err == nil {
			t.Error(name)
		}
	}
}

// FuzzReadPacket parses arbitrary packets, without reading beyond their end.
func FuzzReadPacket(f *testing.F) {
	f.Add(
		[]byte(
			"\x45\x00\x00\x28\x00\x00\x00\x00\x40\x06\x00\x00\x7f\x00\x00\x01\x7f\x00\x00\x01\x00\x50\x00\x50" +
				"\x00\x00\x00\x01\x00\x00\x00\x02\x50\x02\x00\x00\x00\x00\x00\x00",
		),
	)
	f.Add(
		[]byte(
			"\x45\x00\x00\x38\x00\x00\x00\x00\x40\x01\x00\x00\x7f\x00\x00\x01\x7f\x00\x00\x01" +
				"\x03\x03\x00\x00\x00\x00\x00\x00\x4f",
		),
	)
	f.Fuzz(func(_ *testing.T, b []byte) {
		for _, protocol := range []string{host.TCP, host.UDP} {
			readPacket(b, host.Trace{Protocol: protocol, Ports: []uint16{80}})
		}
	})
}

func startListener(t *testing.T, at string) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return netip.MustParseAddrPort(l.Addr().String())
}

// unusedPort returns a port on which no process listens. A socket that only sends keeps the port from being used by
// others.
func unusedPort(t *testing.T, at string) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	free := netip.MustParseAddrPort(l.Addr().String())
	_ = l.Close()
	return free
}
