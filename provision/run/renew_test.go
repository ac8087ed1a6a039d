package run_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"clusterctl/certs"
	"clusterctl/hcl/config"
	"clusterctl/provision/host/hostfake"
)

func (w *world) serialNumber(machine, file string) string {
	w.t.Helper()
	text, err := w.hosts[machine].ReadFile(pkiDir + file)
	if err != nil {
		w.t.Fatal(err)
	}
	cert, err := certs.ParseCert(text)
	if err != nil {
		w.t.Fatal(err)
	}
	return cert.SerialNumber.Text(16)
}

// Certificates are renewed when the user requests it: only those that are named.
// Proves P04.
func TestCertificatesAreRenewedOnRequest(t *testing.T) {
	w := newWorld(t, controlMachine, machine("second", "10.0.0.5", config.RoleControlPlane),
		machine("third", "10.0.0.6", config.RoleControlPlane))
	store := hostfake.NewEtcd("control", "second", "third")
	for _, h := range w.hosts {
		h.Store = store
	}
	w.mustApply()
	for _, h := range w.hosts {
		h.Log = nil
	}
	issued := time.Now()
	w.engine.Now = func() time.Time { return issued.Add(time.Hour) }
	before := map[string]string{}
	for name := range w.hosts {
		for _, file := range []string{"apiserver.crt", "etcd/server.crt"} {
			before[name+file] = w.serialNumber(name, file)
		}
	}
	renewed := func(what string, want map[string]bool) {
		t.Helper()
		w.mustApply()
		for name := range w.hosts {
			for _, file := range []string{"apiserver.crt", "etcd/server.crt"} {
				now := w.serialNumber(name, file)
				if got := now != before[name+file]; got != want[name+" "+file] {
					t.Errorf("%s: %s of %s is renewed: %v", what, file, name, got)
				}
				before[name+file] = now
			}
		}
	}
	w.engine.Renews, w.engine.RenewOn = []string{"etcd-server"}, []string{"second"}
	renewed("one on one machine", map[string]bool{"machine.second etcd/server.crt": true})
	for _, h := range w.hosts {
		for _, did := range h.Log {
			if strings.Contains(did, "restart etcd") {
				t.Errorf("etcd is restarted for a certificate that it reads with each connection: %s", did)
			}
		}
	}
	w.engine.Now = func() time.Time { return issued.Add(2 * time.Hour) }
	w.engine.Renews, w.engine.RenewOn = []string{"all"}, []string{"machine.control"}
	renewed("all on one machine",
		map[string]bool{"machine.control apiserver.crt": true, "machine.control etcd/server.crt": true})
	w.engine.Renews, w.engine.RenewOn = nil, nil
	renewed("nothing", nil)
	for _, c := range []struct{ name, on, want string }{{"apiserve", "", "there are admin.conf, apiserver, " +
		"apiserver-etcd-client"}, {"all", "fourth", "no such machine"}} {
		w.engine.Renews, w.engine.RenewOn = []string{c.name}, nil
		if c.on != "" {
			w.engine.RenewOn = []string{c.on}
		}
		if _, err := w.apply(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("renew %s on %q: %v", c.name, c.on, err)
		}
	}
}

// The expiration of certificates is read from the machines themselves.
// Proves P04.
func TestExpirationsAreReadFromMachines(t *testing.T) {
	w := newWorld(t, controlMachine, machineA)
	w.mustApply()
	if err := w.hosts["machine.a"].RemoveAll(pkiDir + "kubelet.crt"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	list, err := w.engine.Expirations(ctx)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, e := range list {
		seen[e.Machine+" "+e.Name] = true
		switch {
		case e.Machine == "a" && e.Name == "kubelet":
			if e.Problem != "missing" {
				t.Errorf("what is missing: %+v", e)
			}
		case e.Problem != "" || time.Until(e.Until) < 360*24*time.Hour:
			t.Errorf("%+v", e)
		}
	}
	for _, want := range []string{"control apiserver", "control etcd-peer", "control admin.conf", "a kubelet",
		"a kubelet.conf"} {
		if !seen[want] {
			t.Errorf("nothing is said of %s: %v", want, list)
		}
	}
}
