package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"clusterctl/certs"
	"clusterctl/provision/state"
)

func newState(t *testing.T) *state.State {
	t.Helper()
	s, err := state.New("home", func() (map[string]certs.Pair, error) {
		pairs := map[string]certs.Pair{}
		for name, commonName := range certs.CommonNames {
			p, err := certs.NewCA(commonName, 0, time.Now())
			if err != nil {
				return nil, err
			}
			pairs[name] = p
		}
		return pairs, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A requested rotation is recorded once, and ends only when every certificate is issued again.
// Proves S37.
func TestRotateRecordsTheWorkOfApply(t *testing.T) {
	for arg, r := range rotationArguments {
		s, now := newState(t), time.Now()
		if _, err := recordRotation(s, arg, certs.Pair{}, 0, false, true, now); err == nil ||
			!strings.Contains(err.Error(), "is not being replaced") {
			t.Errorf("%s: its end before its beginning: %v", arg, err)
		}
		if _, err := recordRotation(s, arg, certs.Pair{}, -time.Hour, true, false, now); err == nil {
			t.Errorf("%s is kept for less than no time", arg)
		}
		if _, err := recordRotation(s, arg, certs.Pair{}, 0, false, false, now); err != nil {
			t.Fatalf("%s: %v", arg, err)
		}
		if got := s.Rotations[r.name]; got.Phase != state.PhaseTrust || got.Keep != r.keep ||
			len(s.Keys.Next[r.name]) == 0 {
			t.Errorf("%s: %+v", arg, got)
		}
		if _, err := recordRotation(s, arg, certs.Pair{}, 0, false, false, now); err == nil ||
			!strings.Contains(err.Error(), "-finish "+arg) {
			t.Errorf("%s twice: %v", arg, err)
		}
		if _, err := recordRotation(s, arg, certs.Pair{}, 0, false, true, now); err == nil ||
			!strings.Contains(err.Error(), "apply first") {
			t.Errorf("%s: its end before all machines have it: %v", arg, err)
		}
		s.StartIssuing(r.name, now)
		s.RecordIssuedEverywhere(r.name, now)
		if what, err := recordRotation(s, arg, certs.Pair{}, 0, false, true, now); err != nil ||
			!strings.Contains(what, endMessages[arg]) {
			t.Errorf("%s: its end: %q, %v", arg, what, err)
		}
		if !s.Rotations[r.name].IsOver(now) {
			t.Errorf("%s is not over", arg)
		}
	}
	s := newState(t)
	if _, err := recordRotation(s, "cluster-ca", certs.Pair{}, 36*time.Hour, true, false, time.Now()); err != nil ||
		s.Rotations[certs.ClusterCA].Keep != 36*time.Hour {
		t.Errorf("%+v, %v", s.Rotations[certs.ClusterCA], err)
	}
}

// An authority that the user provides is accepted if it can do what an authority must do, and only this authority
// becomes trusted.
// Proves S37.
func TestSuppliedAuthoritiesAreChecked(t *testing.T) {
	now := time.Now()
	root, err := certs.NewCA("company", 0, now)
	if err != nil {
		t.Fatal(err)
	}
	own, err := certs.NewCA("kubernetes", 0, now)
	if err != nil {
		t.Fatal(err)
	}
	between, err := certs.Cross(root, own.Cert, now)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := certs.Issue(own, certs.Admin(), now)
	if err != nil {
		t.Fatal(err)
	}
	short, err := certs.NewCA("kubernetes", time.Minute, now.Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key := file("own.key", own.Key)
	for _, c := range []struct {
		what  string
		given givenAuthority
		args  []string
		wrong string
	}{
		{"an intermediate with its root",
			givenAuthority{file("chain", append(slices.Clone(between), root.Cert...)), key}, []string{"cluster-ca"},
			""},
		{"no key", givenAuthority{file("between", between), ""}, []string{"cluster-ca"}, "whose key is elsewhere"},
		{"another's key", givenAuthority{file("between", between), file("root.key", root.Key)}, []string{"cluster-ca"},
			"not the certificate's"},
		{"a leaf", givenAuthority{file("leaf", leaf.Cert), file("leaf.key", leaf.Key)}, []string{"cluster-ca"},
			"not a certificate authority"},
		{"one that has ended", givenAuthority{file("short", short.Cert), file("short.key", short.Key)},
			[]string{"cluster-ca"}, "ended on"},
		{"for two", givenAuthority{file("between", between), key}, []string{"cluster-ca", "etcd-ca"}, "one authority"},
		{"nothing", givenAuthority{}, []string{"cluster-ca", "etcd-ca"}, ""},
	} {
		got, err := c.given.read(c.args, false, now)
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %v", c.what, err)
		}
		if c.given.certificate != "" && err == nil && string(got.Cert) != string(between) {
			t.Errorf("%s: trusted is %s", c.what, got.Cert)
		}
	}
}
