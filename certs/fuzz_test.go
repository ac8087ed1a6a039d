package certs_test

import (
	"math/big"
	"testing"
	"time"

	"clusterctl/certs"
)

// FuzzRevocations parses arbitrary bytes as a revocation list, and issues lists with arbitrary serial numbers. Only
// lists that the authority has signed are accepted, with the entries that it has signed.
func FuzzRevocations(f *testing.F) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ca, err := certs.NewCA("kubernetes", 0, now)
	if err != nil {
		f.Fatal(err)
	}
	const serial = "1f00"
	good, err := certs.RevocationList(ca, []certs.Revoked{{Serial: serial, At: now, Until: now.Add(time.Hour)}}, now)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good, serial)
	f.Add(certs.EncodeRevocations(good), "0")
	f.Add(good[:len(good)/2], "-1")
	f.Add([]byte("-----BEGIN X509 CRL-----\na: b\n\nMAA=\n-----END X509 CRL-----\n"), "zz")
	f.Fuzz(func(t *testing.T, text []byte, serial string) {
		if taken, err := certs.ParseRevocations(text, ca.Cert); err == nil && (len(taken) != 1 || !taken["1f00"]) {
			t.Errorf("a list that was not signed is taken: %v", taken)
		}
		if _, err := certs.ParseRevocations(good, text); err == nil {
			t.Error("another authority's list is taken")
		}
		list, err := certs.RevocationList(ca, []certs.Revoked{{Serial: serial, At: now}}, now)
		if err != nil {
			return
		}
		number, _ := new(big.Int).SetString(serial, 16)
		if taken, err := certs.ParseRevocations(list, ca.Cert); err != nil || number == nil || !taken[number.Text(16)] {
			t.Errorf("serial number %q is in the list as %v, %v", serial, taken, err)
		}
	})
}
