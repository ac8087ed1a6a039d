package block

import (
	"net/netip"
	"testing"
)

func TestAddressesThatOtherMachinesCannotReachHaveAReason(t *testing.T) {
	const loopback, multicast, unspecified = "it is a loopback address", "it is a multicast address",
		"it is an unspecified address"
	for address, want := range map[string]string{
		"10.0.0.1": "", "192.0.2.255": "", "100.64.0.1": "", "fd00::1": "", "2001:db8::1": "",
		"0.0.0.0": unspecified, "0.1.2.3": unspecified, "::": unspecified,
		"127.0.0.1": loopback, "127.9.9.9": loopback, "::1": loopback,
		"224.0.0.5": multicast, "239.255.255.255": multicast, "ff02::1": multicast, "ff0e::1": multicast,
		"169.254.1.1": "it is a link-local address", "fe80::1": "it is a link-local address",
		"255.255.255.255": "it is the broadcast address",
		"fe80::1%eth0":    "an address with a zone is valid only on its own machine",
		"fd00::1%eth0":    "an address with a zone is valid only on its own machine",
		"::ffff:10.0.0.1": `write the IPv4 address as "10.0.0.1"`,
	} {
		if got := unreachableReason(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
}
