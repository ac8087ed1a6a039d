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
		got, err := Next(c.network, c.bits, "", func(piece string) bool { return used[piece] })
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("Next(%s, %d, %v) = %q, %v; want %q", c.network, c.bits, c.used, got, err, c.want)
		}
	}
}

func TestTheSearchGoesOnAfterTheLastPiece(t *testing.T) { // S04
	used := map[string]bool{"10.0.2.0/24": true, "10.0.3.0/24": true}
	for last, want := range map[string]string{"": "10.0.0.0/24", "10.0.1.0/24": "10.0.1.0/24", "10.0.2.0/24": "10.0.0.0/24", "10.9.0.0/24": "10.0.0.0/24", "10.0.0.0/25": "10.0.0.0/24"} {
		if got, err := Next("10.0.0.0/22", 24, last, func(piece string) bool { return used[piece] }); got != want || err != nil {
			t.Errorf("after %q: %q, %v; want %q", last, got, err, want)
		}
	}
}

func TestNextNeverGivesAPieceTwice(t *testing.T) { // S04
	used := map[string]bool{}
	taken, last := func(piece string) bool { return used[piece] }, "10.244.200.0/24"
	for range 256 {
		piece, err := Next("10.244.0.0/16", 24, last, taken)
		if err != nil {
			t.Fatal(err)
		}
		if used[piece] || !netip.MustParsePrefix("10.244.0.0/16").Overlaps(netip.MustParsePrefix(piece)) {
			t.Fatalf("piece %s after %v", piece, used)
		}
		used[piece], last = true, piece
	}
	if piece, err := Next("10.244.0.0/16", 24, last, taken); err == nil {
		t.Fatalf("a 257th piece: %s", piece)
	}
}
