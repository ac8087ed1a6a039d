package nodecidr

import (
	"net/netip"
	"testing"
)

func TestNextGivesTheFirstFreePiece(t *testing.T) { // S04
	for _, c := range []struct {
		network string
		bits    int
		used    []string
		want    string
	}{
		{"10.244.0.0/16", 24, nil, "10.244.0.0/24"},
		{"10.244.0.0/16", 24, []string{"10.244.0.0/24"}, "10.244.1.0/24"},
		{"10.244.0.0/16", 24, []string{"10.244.0.0/24", "10.244.2.0/24"}, "10.244.1.0/24"},
		{"10.0.0.0/30", 31, []string{"10.0.0.0/31", "10.0.0.2/31"}, ""},
		{"255.255.255.0/24", 25, []string{"255.255.255.0/25", "255.255.255.128/25"}, ""},
		{"fd00::/48", 64, []string{"fd00::/64"}, "fd00:0:0:1::/64"},
		{"10.0.0.0/16", 8, nil, ""},
		{"nonsense", 24, nil, ""},
	} {
		used := map[string]bool{}
		for _, u := range c.used {
			used[u] = true
		}
		got, err := Next(c.network, c.bits, used)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("Next(%s, %d, %v) = %q, %v; want %q", c.network, c.bits, c.used, got, err, c.want)
		}
	}
}

func TestNextNeverGivesAPieceTwice(t *testing.T) { // S04
	used := map[string]bool{}
	for range 256 {
		piece, err := Next("10.244.0.0/16", 24, used)
		if err != nil {
			t.Fatal(err)
		}
		if used[piece] || !netip.MustParsePrefix("10.244.0.0/16").Overlaps(netip.MustParsePrefix(piece)) {
			t.Fatalf("piece %s after %v", piece, used)
		}
		used[piece] = true
	}
	if piece, err := Next("10.244.0.0/16", 24, used); err == nil {
		t.Fatalf("a 257th piece: %s", piece)
	}
}
