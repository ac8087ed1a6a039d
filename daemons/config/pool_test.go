package config

import (
	"net/netip"
	"strings"
	"testing"
)

func TestRangesOfAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.10-10.0.0.20":  "10.0.0.10-10.0.0.20",
		"10.0.0.9":             "10.0.0.9",
		"192.168.7.0/28":       "192.168.7.1-192.168.7.14",
		"192.168.7.0/31":       "192.168.7.0-192.168.7.1",
		"192.168.7.9/32":       "192.168.7.9",
		"fd00::/126":           "fd00::1-fd00::3",
		"fd00::10 - fd00::20":  "fd00::10-fd00::20",
		"fd00::1/128":          "fd00::1",
		"10.0.0.20-10.0.0.10":  `! "10.0.0.20-10.0.0.10" ends before it begins`,
		"10.0.0.1-fd00::1":     `! "10.0.0.1-fd00::1" begins and ends in different families`,
		"10.0.0.1/24":          `! "10.0.0.1/24" has bits set outside of its prefix; the network is 10.0.0.0/24`,
		"10.0.0.0/33":          `! "10.0.0.0/33" is not a network such as 10.0.0.0/28`,
		"ten":                  `! "ten" is not an IP address`,
		"127.0.0.1":            "! 127.0.0.1 is not an address that other machines can reach",
		"224.0.0.1":            "! 224.0.0.1 is not an address that other machines can reach",
		"fe80::1%eth0":         `! "fe80::1%eth0" is not an IP address`,
		"10.0.0.1-10.0.0.2-10": `! "10.0.0.2-10" is not an IP address`,
	} {
		r, err := ReadRange(text)
		got := r.String()
		if err != nil {
			got = "! " + err.Error()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestPoolsAreReadAsTheyAreWritten(t *testing.T) {
	off := false
	data, annotations, err := EncodePools(
		[]Pool{
			{Name: "office", Addresses: []string{"10.0.0.10-10.0.0.20", "fd00::/124"}},
			{Name: "edge", Addresses: []string{"192.168.7.0/28"},
				AutoAssign: &off, Namespaces: []string{"shop"}, Interfaces: []string{"eth1"}},
		},
	)
	if err != nil || len(annotations) > 0 {
		t.Fatal(annotations, err)
	}
	if want := `{"addresses":["192.168.7.0/28"],"autoAssign":false,"namespaces":["shop"],"interfaces":["eth1"]}`; data["edge"] != want {
		t.Errorf("written as %s", data["edge"])
	}
	pools, err := ReadPools(data, annotations)
	if err != nil || len(pools) != 2 || pools[0].Name != "edge" || pools[1].Name != "office" {
		t.Fatalf("read as %v, %v", pools, err)
	}
	edge, office := &pools[0], &pools[1]
	if edge.AutoAssign == nil || *edge.AutoAssign || office.AutoAssign != nil || !edge.Serves("shop") ||
		edge.Serves("lab") ||
		!office.Serves("lab") {
		t.Errorf("read as %+v, %+v", edge, office)
	}
	for _, a := range []string{"10.0.0.10", "10.0.0.20", "fd00::f"} {
		if !office.Contains(netip.MustParseAddr(a)) || edge.Contains(netip.MustParseAddr(a)) {
			t.Errorf("%s is not of the right pool", a)
		}
	}
	for _, a := range []string{"10.0.0.9", "10.0.0.21", "fd00::10", "::a00:a"} {
		if office.Contains(netip.MustParseAddr(a)) {
			t.Errorf("%s is of the pool", a)
		}
	}
}

// An explicit annotation means that there are no pools. Missing or empty data does not.
func TestNoPoolsAreSaid(t *testing.T) {
	data, annotations, err := EncodePools(nil)
	if err != nil {
		t.Fatal(err)
	}
	if pools, err := ReadPools(data, annotations); err != nil || pools != nil {
		t.Errorf("no pools are read as %v, %v", pools, err)
	}
	for _, annotations := range []map[string]string{nil, {"other": "true"}, {NoPoolsAnnotation: "false"}} {
		if pools, err := ReadPools(map[string]string{}, annotations); err == nil {
			t.Errorf("an empty ConfigMap with annotations %v is read as %v", annotations, pools)
		}
	}
	if pools, err := ReadPools(map[string]string{"office": `{"addresses":["10.0.0.10"]}`}, annotations); err != nil ||
		len(pools) != 1 {
		t.Errorf("a pool beside the word that there are none is read as %v, %v", pools, err)
	}
}

// If one pool is invalid, no pool is read. Otherwise Services would lose the addresses of that pool.
func TestPoolsThatAreNotRead(t *testing.T) {
	const good = `{"addresses":["10.0.0.10-10.0.0.20"]}`
	for text, want := range map[string]string{
		``:                                    "EOF",
		`{`:                                   "unexpected EOF",
		`{"addresses":["10.1.0.0/24"]} {}`:    "something follows",
		`{"addresses":[]}`:                    "addresses are missing",
		`{"addresses":["10.1.0.0/24"],"x":1}`: "unknown field",
		`{"addresses":["ten"]}`:               "not an IP address",
		`{"addresses":["10.0.0.0/27"]}`:       "overlaps 10.0.0.10-10.0.0.20 of pool a",
		`{"addresses":["10.1.0.5","10.1.0.0/24"]}`: "overlaps 10.1.0.5 of pool b",
	} {
		if pools, err := DecodePools(map[string]string{"a": good, "b": text}); err == nil ||
			!strings.Contains(err.Error(), want) ||
			pools != nil {
			t.Errorf("%s: %v, %v", text, pools, err)
		}
	}
}
