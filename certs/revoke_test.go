package certs_test

import (
	"bytes"
	"testing"
	"time"

	"clusterctl/certs"
)

// A revocation list contains a revoked certificate until its expiration, is the same for the same input, and is
// accepted only from its own authority.
func TestRevocationList(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	ca, err := certs.NewCA("kubernetes", 0, now)
	if err != nil {
		t.Fatal(err)
	}
	other, err := certs.NewCA("kubernetes", 0, now)
	if err != nil {
		t.Fatal(err)
	}
	revoked := []certs.Revoked{
		{Serial: "ff01", At: now, Until: now.Add(time.Hour)},
		{Serial: "ab", At: now.Add(time.Minute), Until: now.Add(2 * time.Hour)},
	}
	first, err := certs.RevocationList(ca, revoked, now)
	if err != nil {
		t.Fatal(err)
	}
	second, err := certs.RevocationList(ca, []certs.Revoked{revoked[1], revoked[0]}, now)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second) {
		t.Error("the same list has other bytes")
	}
	serials, err := certs.ParseRevocations(certs.EncodeRevocations(first), ca.Cert)
	if err != nil || len(serials) != 2 || !serials["ff01"] || !serials["ab"] {
		t.Errorf("%v, %v", serials, err)
	}
	if _, err := certs.ParseRevocations(first, other.Cert); err == nil {
		t.Error("another authority's list was believed")
	}
	later, err := certs.RevocationList(ca, revoked, now.Add(90*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if serials, err := certs.ParseRevocations(later, ca.Cert); err != nil || len(serials) != 1 || !serials["ab"] {
		t.Errorf("after an hour: %v, %v", serials, err)
	}
	if _, err := certs.RevocationList(ca, []certs.Revoked{{Serial: "nothing"}}, now); err == nil {
		t.Error("a serial number that is none was taken")
	}
}
