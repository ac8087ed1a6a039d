package run_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"clusterctl/certs"
	"clusterctl/hcl/config"
	"clusterctl/provision/host/hostfake"
	"clusterctl/provision/run/report"
	"clusterctl/provision/state"
)

// expireCertificates replaces all certificates of a machine, including those in kubeconfigs, with certificates that
// expired yesterday.
func (w *world) expireCertificates(address string) {
	w.t.Helper()
	s, err := w.engine.Store.Read()
	if err != nil {
		w.t.Fatal(err)
	}
	h := w.hosts[address]
	for _, path := range h.Files() {
		text, err := h.ReadFile(path)
		if err != nil {
			w.t.Fatal(err)
		}
		switch {
		case strings.HasPrefix(path, "/etc/kubernetes/pki/") && strings.HasSuffix(path, ".crt"):
			if leaf, err := certs.ParseCert(text); err == nil && !leaf.IsCA {
				pair := w.expiredPair(s, text)
				w.writeFile(h, path, pair.Cert)
				w.writeFile(h, strings.TrimSuffix(path, ".crt")+".key", pair.Key)
			}
		case strings.HasPrefix(path, "/etc/kubernetes/") && strings.HasSuffix(path, ".conf"):
			c, err := clientcmd.Load(text)
			if err != nil {
				w.t.Fatal(err)
			}
			for _, user := range c.AuthInfos {
				pair := w.expiredPair(s, user.ClientCertificateData)
				user.ClientCertificateData, user.ClientKeyData = pair.Cert, pair.Key
			}
			if text, err = clientcmd.Write(*c); err != nil {
				w.t.Fatal(err)
			}
			w.writeFile(h, path, text)
		}
	}
}

func (w *world) writeFile(h *hostfake.Host, path string, text []byte) {
	w.t.Helper()
	if err := h.WriteFile(path, bytes.NewReader(text), 0o600, 0, 0); err != nil {
		w.t.Fatal(err)
	}
}

// expiredPair returns a certificate with the properties of another that expired yesterday.
func (w *world) expiredPair(s *state.State, like []byte) certs.Pair {
	w.t.Helper()
	leaf, err := certs.ParseCert(like)
	if err != nil {
		w.t.Fatal(err)
	}
	hosts := slices.Clone(leaf.DNSNames)
	for _, ip := range leaf.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	for name := range certs.CommonNames {
		ca, err := certs.ParseCert(s.CAs[name])
		if err != nil || leaf.CheckSignatureFrom(ca) != nil {
			continue
		}
		pair, err := certs.Issue(
			s.CA(name),
			certs.Request{CommonName: leaf.Subject.CommonName, Organizations: leaf.Subject.Organization,
				Hosts: hosts, Usages: leaf.ExtKeyUsage, Lifetime: time.Hour},
			time.Now().AddDate(0, 0, -1),
		)
		if err != nil {
			w.t.Fatal(err)
		}
		return pair
	}
	w.t.Fatalf("no authority has signed the certificate of %s", leaf.Subject.CommonName)
	return certs.Pair{}
}

// checkCertificates makes daemons answer only while their certificate is valid, as real daemons do. They read it for
// each connection.
func (w *world) checkCertificates() {
	good := func(h *hostfake.Host, path string) error {
		text, err := h.ReadFile(path)
		if err != nil {
			return err
		}
		leaf, err := certs.ParseCert(text)
		if err == nil && time.Now().After(leaf.NotAfter) {
			err = errors.New("x509: certificate has expired")
		}
		return err
	}
	ill := func(address string) error {
		at, err := url.Parse(address)
		if err != nil {
			return err
		}
		for ip, h := range w.hostsByIP {
			if ip.String() != at.Hostname() {
				continue
			}
			if at.Port() == "2379" {
				return good(h, "/etc/kubernetes/pki/etcd/server.crt")
			}
			return good(h, "/etc/kubernetes/pki/apiserver.crt")
		}
		return fmt.Errorf("no machine has the address %s", at.Hostname())
	}
	for _, h := range w.hosts {
		h.AnswerError = ill
	}
}

// One apply repairs three control-plane machines whose certificates have all expired. All machines are repaired before
// the health of the others is considered.
// Proves P05.
func TestExpiredCertificatesAreReplacedBeforeHealthIsJudged(t *testing.T) {
	second, third := machine("second", "10.0.0.5", config.RoleControlPlane, config.RoleNode), machine("third",
		"10.0.0.6", config.RoleControlPlane, config.RoleNode)
	w := newWorld(t, controlMachine, second, third, machineA)
	w.mustApply()
	store := hostfake.NewEtcd("control", "second", "third")
	for address, h := range w.hosts {
		h.Store = store
		w.expireCertificates(address)
	}
	w.checkCertificates()
	w.clusterAPI.planError = errors.New("greet 10.0.0.1:6443: x509: certificate has expired")
	var mu sync.Mutex
	var started []string
	w.engine.Report = func(e report.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Kind == report.Begin {
			started = append(started, e.Machine+" "+e.Message)
		}
	}
	p, err := w.apply()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range p.Machines {
		if !strings.Contains(m.Note, "mended first") {
			t.Errorf("the plan does not say that %s is mended first: %q", m.Address, m.Note)
		}
	}
	mended := started[:min(4, len(started))]
	slices.Sort(mended)
	if !slices.Equal(mended,
		[]string{"machine.a mending", "machine.control mending", "machine.second mending", "machine.third mending"}) {
		t.Errorf("begun %v: all are mended before one is changed", started)
	}
	w.clusterAPI.planError, w.engine.Report = nil, nil
	if again := w.mustApply(); !again.IsEmpty() {
		t.Errorf("not empty afterwards: %+v", again.Machines)
	}
}

// The only control-plane machine is repaired in the same way.
// Proves P05.
func TestASingleControlPlaneRecoversFromExpiredCertificates(t *testing.T) {
	w := newWorld(t, controlMachine, machineA)
	w.mustApply()
	w.expireCertificates("machine.control")
	w.expireCertificates("machine.a")
	w.checkCertificates()
	w.clusterAPI.planError = errors.New("x509: certificate has expired")
	w.mustApply()
	w.clusterAPI.planError = nil
	if again := w.mustApply(); !again.IsEmpty() {
		t.Errorf("not empty afterwards: %+v", again.Machines)
	}
}

// Units that have failed on two of three machines are started on both before a change of the third is considered.
// Proves P05.
func TestDeadUnitsAreStartedBeforeHealthIsJudged(t *testing.T) {
	second, third := machine("second", "10.0.0.5", config.RoleControlPlane), machine("third", "10.0.0.6",
		config.RoleControlPlane)
	w := newWorld(t, controlMachine, second, third)
	w.mustApply()
	store := hostfake.NewEtcd("control", "second", "third")
	for _, h := range w.hosts {
		h.Store, h.AnswerError = store, w.daemonError
	}
	for _, address := range []string{"machine.second", "machine.third"} {
		w.hosts[address].FailUnit("etcd.service")
		w.hosts[address].FailUnit("kube-apiserver.service")
	}
	w.editFile("machine.control", etcdFile)
	w.mustApply()
	if again := w.mustApply(); !again.IsEmpty() {
		t.Errorf("not empty afterwards: %+v", again.Machines)
	}
}

// A machine that could not be repaired is reported and does not keep others from being repaired. The message does not
// suggest removing it.
func TestFailedRepairsAreReportedWithTheirReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		second, third := machine("second", "10.0.0.5", config.RoleControlPlane), machine("third", "10.0.0.6",
			config.RoleControlPlane)
		w := newWorld(t, controlMachine, second, third)
		w.mustApply()
		store := hostfake.NewEtcd("control", "second", "third")
		for _, h := range w.hosts {
			h.Store = store
			h.AnswerError = func(url string) error {
				if strings.Contains(url, "10.0.0.6") {
					return errors.New("connection refused")
				}
				return nil
			}
		}
		w.hosts["machine.third"].FailUnit("etcd.service")
		w.hosts["machine.third"].StartErrors = map[string]error{"etcd.service": errors.New("exit 1: no space left on " +
			"device")}
		w.editFile("machine.control", etcdFile)
		_, err := w.apply()
		if err == nil || !strings.Contains(err.Error(), "1 of 3 members would be left") {
			t.Fatalf("error %v", err)
		}
		if strings.Contains(err.Error(), "take it out") || !strings.Contains(err.Error(), "no space left on device") {
			t.Errorf("the error sends people the wrong way: %v", err)
		}
	})
}

// daemonError returns an error for the URL of an API server or etcd member whose unit does not run.
func (w *world) daemonError(address string) error {
	at, err := url.Parse(address)
	if err != nil {
		return err
	}
	unit := map[string]string{"2379": "etcd.service", "6443": "kube-apiserver.service"}[at.Port()]
	for ip, h := range w.hostsByIP {
		if ip.String() == at.Hostname() {
			if u, err := h.Unit(context.Background(), unit); err != nil || u.Active != "active" {
				return errors.New("connection refused")
			}
		}
	}
	return nil
}
