package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"clusterctl/certs"
	"clusterctl/hcl/config"
	"clusterctl/provision/state"
)

// A kubeconfig names its user, and the state records enough of it to revoke it.
// Proves P04.
func TestKubeconfigsNameTheirUserAndAreRecorded(t *testing.T) {
	s, c := newState(t), &config.Cluster{Name: "home", Endpoint: "10.0.0.100:6443"}
	for _, who := range []struct {
		person kubeconfigUser
		name   string
		groups []string
	}{
		{kubeconfigUser{lifetime: time.Hour}, "kubernetes-admin", []string{"kubeadm:cluster-admins"}},
		{kubeconfigUser{user: "alice", lifetime: time.Hour}, "alice", nil},
		{kubeconfigUser{user: "bob", groups: []string{"dev", "ops"}, lifetime: 24 * time.Hour}, "bob",
			[]string{"dev", "ops"}},
	} {
		text, handed, err := who.person.kubeconfig(s, c, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "config")
		if err := writeKubeconfig(path, text); err != nil {
			t.Fatal(err)
		}
		cert, err := readClientCertificate(path)
		if err != nil {
			t.Fatal(err)
		}
		if cert.Subject.CommonName != who.name || !slices.Equal(cert.Subject.Organization, who.groups) ||
			time.Until(cert.NotAfter) > who.person.lifetime {
			t.Errorf("%+v gets the certificate of %s until %s", who.person, cert.Subject, cert.NotAfter)
		}
		if handed.Name != who.name || !slices.Equal(handed.Groups, who.groups) ||
			handed.Serial != cert.SerialNumber.Text(16) ||
			!handed.Until.Equal(cert.NotAfter) ||
			handed.Authority != certs.KeyID(s.CAs[certs.ClusterCA]) {
			t.Errorf("written down is %+v", handed)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("others may read it: %v, %v", info, err)
		}
	}
	if _, _, err := (kubeconfigUser{lifetime: time.Second}).kubeconfig(s, c, time.Now()); err == nil {
		t.Error("one that is over at once is made")
	}
}

// revoke by name finds all valid kubeconfigs with that name, and no others.
// Proves P04.
func TestIssuedKubeconfigsAreRevokedByName(t *testing.T) {
	s, now := newState(t), time.Now()
	handed := []state.IssuedKubeconfig{
		{
			Name:   "alice",
			Serial: "a1",
			Until:  now.Add(time.Hour),
		}, {Name: "bob", Serial: "b1", Until: now.Add(time.Hour)},
		{
			Name:   "alice",
			Serial: "a2",
			Until:  now.Add(time.Hour),
		}, {Name: "alice", Serial: "a3", Until: now.Add(-time.Hour)},
	}
	list, err := findRevocations(s, handed, "alice", now)
	if err != nil {
		t.Fatal(err)
	}
	s.Revoke(list...)
	for i, want := range []string{"revoked", "valid", "revoked", "expired"} {
		if got := kubeconfigStatus(s, handed[i], now); got != want {
			t.Errorf("%+v is %s, want %s", handed[i], got, want)
		}
	}
	if _, err := findRevocations(s, handed, "carol", now); err == nil || !strings.Contains(err.Error(), "certs list") {
		t.Errorf("without a kubeconfig: %v", err)
	}
	if list, err := findRevocations(s, handed, "0xB1", now); err != nil || len(list) != 1 || list[0].Serial != "b1" {
		t.Errorf("by serial number: %+v, %v", list, err)
	}
}

// Merging keeps the other entries of a kubeconfig, and refuses to replace another cluster's entry.
// Proves P04.
func TestKubeconfigsAreMergedAsByKubectl(t *testing.T) {
	s := newState(t)
	make := func(cluster, server string) []byte {
		text, _, err := (kubeconfigUser{lifetime: time.Hour}).kubeconfig(s,
			&config.Cluster{Name: cluster, Endpoint: server}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	folder := t.TempDir()
	path, link := filepath.Join(folder, "real"), filepath.Join(folder, "sub", "config")
	if err := os.Mkdir(filepath.Dir(link), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, text := range [][]byte{make("home", "10.0.0.1:6443"), make("work", "10.1.0.1:6443"),
		make("home", "10.0.0.2:6443")} {
		if err := mergeKubeconfig(link, text); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	merged, err := clientcmd.Load(text)
	if err != nil {
		t.Fatal(err)
	}
	if len(merged.Clusters) != 2 || len(merged.AuthInfos) != 2 || len(merged.Contexts) != 2 ||
		merged.CurrentContext != "kubernetes-admin@home" ||
		merged.Clusters["home"].Server != "https://10.0.0.2:6443" {
		t.Errorf("merged is\n%s", text)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("the link is no link any more: %v, %v", info, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may read it: %v, %v", info, err)
	}
	s = newState(t) // another cluster
	if err := mergeKubeconfig(link, make("home", "10.9.0.1:6443")); err == nil ||
		!strings.Contains(err.Error(), "another cluster that is called home") {
		t.Errorf("another cluster's place is taken: %v", err)
	}
	if err := os.WriteFile(path+".lock", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := mergeKubeconfig(path, make("mine", "10.9.0.1:6443")); err == nil ||
		!strings.Contains(err.Error(), "another process is changing it") {
		t.Errorf("kubectl's lock is not heeded: %v", err)
	}
}
