package certs_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"clusterctl/certs"
)

// A leaf is issued again if it differs from the request, or is due.
// Proves P04.
func TestReissueReasonsAreGiven(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	ca, err := certs.NewCA("kubernetes", 0, now)
	if err != nil {
		t.Fatal(err)
	}
	other, err := certs.NewCA("kubernetes", 0, now)
	if err != nil {
		t.Fatal(err)
	}
	request := certs.KubeletServer("node", []string{"10.0.0.1"})
	pair, err := certs.Issue(ca, request, now)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what string
		pair certs.Pair
		ca   []byte
		r    certs.Request
		at   time.Time
		want string
	}{
		{"as asked", pair, ca.Cert, request, now, ""},
		{"half way", pair, ca.Cert, request, now.Add(180 * 24 * time.Hour), ""},
		{"soon over", pair, ca.Cert, request, now.Add(340 * 24 * time.Hour), "expires on 2031-01-01"},
		{"over", pair, ca.Cert, request, now.Add(366 * 24 * time.Hour), "expired on 2031-01-01"},
		{"another CA", pair, other.Cert, request, now, "another CA"},
		{"another address", pair, ca.Cert, certs.KubeletServer("node", []string{"10.0.0.2"}), now, "does not name " +
			"10.0.0.2"},
		{"an address less", pair, ca.Cert, certs.KubeletServer("node", nil), now, "still names 10.0.0.1"},
		{"another name", pair, ca.Cert, certs.KubeletServer("x", []string{"10.0.0.1"}), now, "should be for " +
			"system:node:x"},
		{"another key", certs.Pair{Cert: pair.Cert, Key: other.Key}, ca.Cert, request, now, "another's"},
		{"nothing", certs.Pair{}, ca.Cert, request, now, "cannot be read"},
	} {
		got := certs.ReissueReason(c.pair, c.ca, c.r, c.at)
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

// CheckUsable distinguishes certificates that peers no longer accept from those that are only due.
// Proves P05.
func TestUsableCertificatesAreAcceptedByTLS(t *testing.T) {
	now := time.Now()
	ca, err := certs.NewCA("ca", 0, now)
	if err != nil {
		t.Fatal(err)
	}
	next, err := certs.NewCA("next", 0, now)
	if err != nil {
		t.Fatal(err)
	}
	r := certs.Daemon("kube-proxy")
	r.Lifetime = time.Hour
	pair, err := certs.Issue(ca, r, now)
	if err != nil {
		t.Fatal(err)
	}
	another, err := certs.Issue(ca, r, now)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		pair        certs.Pair
		authorities []byte
		at          time.Time
		want        string
	}{
		"good":                          {pair, ca.Cert, now, ""},
		"due, and still good":           {pair, ca.Cert, now.Add(50 * time.Minute), ""},
		"of one of several authorities": {pair, append(slices.Clone(next.Cert), ca.Cert...), now, ""},
		"ended":                         {pair, ca.Cert, now.Add(2 * time.Hour), "expired on"},
		"of another authority":          {pair, next.Cert, now, "another CA"},
		"with another's key":            {certs.Pair{Cert: pair.Cert, Key: another.Key}, ca.Cert, now, "another's"},
		"without a key":                 {certs.Pair{Cert: pair.Cert}, ca.Cert, now, "key"},
		"no certificate":                {certs.Pair{Cert: []byte("x"), Key: pair.Key}, ca.Cert, now, "certificate"},
	} {
		if err := certs.CheckUsable(c.pair, c.authorities, c.at); (err != nil) != (c.want != "") ||
			err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
