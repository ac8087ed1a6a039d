package run_test

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"clusterctl/certs"
	"clusterctl/hcl/config"
	"clusterctl/provision/host/hostfake"
	"clusterctl/provision/state"
	"clusterctl/tests/tools/amount"
)

const pkiDir = "/etc/kubernetes/pki/"

// trusting is a world that checks at every change of a file and every start of a daemon that all machines can
// communicate. It checks this with the present files, and with the files from the last start of each daemon.
type trusting struct {
	*world
	mu           sync.Mutex
	currentFiles map[string]map[string]string // files of each machine
	startedFiles map[string]map[string]string // the files when a daemon was last started on the machine
	verified     map[string]error
	parsed       map[string]*clientcmdapi.Config
	problems     []string
	calls        int
	failCall     int // the call at which the run is interrupted; 0: none
}

func newTrusting(t *testing.T) *trusting {
	w := &trusting{
		world: newWorld(t, controlMachine, machine("second", "10.0.0.5", config.RoleControlPlane),
			machine("third", "10.0.0.6", config.RoleControlPlane), machineA),
		currentFiles: map[string]map[string]string{}, startedFiles: map[string]map[string]string{},
		verified: map[string]error{}, parsed: map[string]*clientcmdapi.Config{},
	}
	store := hostfake.NewEtcd("control", "second", "third")
	for _, h := range w.hosts {
		h.Store = store
	}
	w.mustApply()
	for name, h := range w.hosts {
		w.currentFiles[name] = w.files(h)
		w.startedFiles[name] = w.currentFiles[name]
		h.BeforeChange = func(what string) error { return w.beforeChange(name, what) }
	}
	return w
}

var errConnectionCut = errors.New("the line was cut")

func (w *trusting) beforeChange(name, what string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.currentFiles[name] = w.files(w.hosts[name])
	if verb, _, _ := strings.Cut(what, " "); verb != "write" {
		w.calls++
		if w.calls == w.failCall {
			return errConnectionCut
		}
		w.startedFiles[name] = w.currentFiles[name]
	}
	w.checkMachine(name, what+" on "+name)
	return nil
}

func (w *trusting) files(h *hostfake.Host) map[string]string {
	files := map[string]string{}
	for _, path := range h.Files() {
		if strings.HasPrefix(path, "/etc/kubernetes/") {
			text, err := h.ReadFile(path)
			if err != nil {
				w.t.Error(err)
			}
			files[strings.TrimPrefix(path, pkiDir)] = string(text)
		}
	}
	return files
}

// checkMachine checks a machine against all machines.
func (w *trusting) checkMachine(changed, when string) {
	type view struct {
		name  string
		files map[string]string
	}
	var all []view
	for name := range w.hosts {
		all = append(all, view{name, w.currentFiles[name]}, view{name, w.startedFiles[name]})
	}
	for _, a := range all {
		for _, b := range all {
			if a.name != changed && b.name != changed {
				continue
			}
			for _, c := range []struct{ what, shown, trusted string }{
				{"the API server of %s to clients of %s", a.files["apiserver.crt"], b.files["ca.crt"]},
				{"the API server of %s to kubelets of %s", a.files["apiserver-kubelet-client.crt"], b.files["ca.crt"]},
				{"the kubelet of %s to the API server of %s", a.files["kubelet.crt"], b.files["ca.crt"]},
				{"the node of %s to the API server of %s", w.user(a.files["/etc/kubernetes/kubelet.conf"]),
					b.files["ca.crt"]},
				{"the proxy of %s to the API server of %s", w.user(a.files["/etc/kubernetes/proxy.conf"]),
					b.files["ca.crt"]},
				{"the scheduler of %s to the API server of %s", w.user(a.files["/etc/kubernetes/scheduler.conf"]),
					b.files["ca.crt"]},
				{"the API server of %s to daemons of %s", a.files["apiserver.crt"],
					w.cluster(b.files["/etc/kubernetes/kubelet.conf"])},
				{"the API server of %s to etcd of %s", a.files["apiserver-etcd-client.crt"], b.files["etcd/ca.crt"]},
				{"etcd of %s to clients of %s", a.files["etcd/server.crt"], b.files["etcd/ca.crt"]},
				{"etcd of %s to its peer of %s", a.files["etcd/peer.crt"], b.files["etcd/ca.crt"]},
				{"the front proxy of %s to what trusts %s", a.files["front-proxy-client.crt"],
					b.files["front-proxy-ca.crt"]},
			} {
				if c.shown == "" || c.trusted == "" {
					continue // not on this machine
				}
				if err := w.verify(c.shown, c.trusted); err != nil {
					w.problems = append(w.problems, fmt.Sprintf("%s: %s: %v", when, fmt.Sprintf(c.what, a.name, b.name),
						err))
				}
			}
			if signs, believed := a.files["sa.key"], b.files["sa.pub"]; signs != "" && believed != "" &&
				w.verifyKeyPair(believed, signs) != nil {
				w.problems = append(w.problems, fmt.Sprintf("%s: tokens of %s are not believed by %s", when, a.name,
					b.name))
			}
		}
	}
}

func (w *trusting) verify(shown, trusted string) error {
	id := shown + "\x00" + trusted
	if err, ok := w.verified[id]; ok {
		return err
	}
	w.verified[id] = verify(shown, trusted)
	return w.verified[id]
}

func verify(shown, trusted string) error {
	leaf, err := certs.ParseCert([]byte(shown))
	if err != nil {
		return err
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(trusted))
	between.AppendCertsFromPEM(certs.ChainOf([]byte(shown)))
	_, err = leaf.Verify(
		x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}},
	)
	return err
}

// kubeconfig parses a kubeconfig. It returns nil if there is none.
func (w *trusting) kubeconfig(text string) *clientcmdapi.Config {
	if _, ok := w.parsed[text]; !ok {
		c, err := clientcmd.Load([]byte(text))
		if err != nil {
			w.t.Error(err)
		}
		if c.Contexts[c.CurrentContext] == nil {
			c = nil
		}
		w.parsed[text] = c
	}
	return w.parsed[text]
}

func (w *trusting) user(kubeconfig string) string {
	if c := w.kubeconfig(kubeconfig); c != nil {
		return string(c.AuthInfos[c.Contexts[c.CurrentContext].AuthInfo].ClientCertificateData)
	}
	return ""
}

func (w *trusting) cluster(kubeconfig string) string {
	if c := w.kubeconfig(kubeconfig); c != nil {
		return string(c.Clusters[c.Contexts[c.CurrentContext].Cluster].CertificateAuthorityData)
	}
	return ""
}

var errUntrustedKey = errors.New("signed with a key that is not believed")

func (w *trusting) verifyKeyPair(public, private string) error {
	id := public + "\x00" + private
	if err, ok := w.verified[id]; ok {
		return err
	}
	w.verified[id] = errUntrustedKey
	key, err := certs.ParseKey([]byte(private))
	if err != nil {
		return err
	}
	want, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	for block, rest := pem.Decode([]byte(public)); block != nil; block, rest = pem.Decode(rest) {
		if bytes.Equal(block.Bytes, want) {
			w.verified[id] = nil
		}
	}
	return w.verified[id]
}

// rotateAll adds the rotation of all authorities and keys to the state. The former ones are kept for the given time.
func (w *trusting) rotateAll(keep time.Duration) {
	w.t.Helper()
	w.changeState(func(s *state.State) {
		for name, commonName := range certs.CommonNames {
			next, err := certs.NewCA(commonName, 0, time.Now())
			if err == nil {
				err = s.Rotate(name, next, keep, time.Now())
			}
			if err != nil {
				w.t.Fatal(err)
			}
		}
		private, public, err := certs.NewKey()
		if err == nil {
			err = s.Rotate(state.ServiceAccount, certs.Pair{Cert: public, Key: private}, keep, time.Now())
		}
		if err != nil {
			w.t.Fatal(err)
		}
	})
}

func (w *trusting) changeState(do func(*state.State)) {
	w.t.Helper()
	s := w.state()
	do(s)
	if err := w.engine.Store.Write(s); err != nil {
		w.t.Fatal(err)
	}
}

func (w *trusting) state() *state.State {
	w.t.Helper()
	s, err := w.engine.Store.Read()
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// checkReplaced checks that nothing of the former authorities and keys remains.
func (w *trusting) checkReplaced(former *state.State) {
	w.t.Helper()
	now := w.state()
	if len(now.Rotations) != 0 || len(now.Keys.Next) != 0 {
		w.t.Errorf("the state still replaces %v", slices.Collect(maps.Keys(now.Rotations)))
	}
	for address, h := range w.hosts {
		for path, text := range w.files(h) {
			for name := range certs.CommonNames {
				if strings.Contains(text, strings.TrimSpace(string(former.CAs[name]))) {
					w.t.Errorf("%s: %s still has the former %s", address, path, name)
				}
			}
			if !strings.HasSuffix(path, ".crt") {
				continue
			}
			if list := certs.ChainOf([]byte(text)); len(list) > 0 {
				w.t.Errorf("%s: %s has more than one certificate", address, path)
			}
			trusted := now.CAs[certs.ClusterCA]
			if strings.HasPrefix(path, "etcd/") || strings.HasPrefix(path, "apiserver-etcd") {
				trusted = now.CAs[certs.EtcdCA]
			} else if strings.HasPrefix(path, "front-proxy") {
				trusted = now.CAs[certs.FrontProxyCA]
			}
			if err := verify(text, string(trusted)); err != nil {
				w.t.Errorf("%s: %s: %v", address, path, err)
			}
		}
	}
}

func (w *trusting) checkProblems() {
	w.t.Helper()
	for _, b := range w.problems[:min(len(w.problems), 5)] {
		w.t.Error(b)
	}
}

// One apply replaces all authorities and the key of service accounts. At no time does a daemon present a certificate
// that another does not trust.
// Proves S37.
func TestAllAuthoritiesAreReplacedWithoutLosingTrust(t *testing.T) {
	w := newTrusting(t)
	former := w.state()
	w.rotateAll(0)
	done := w.mustApply()
	if len(done.Rotations) != 4 || done.IsEmpty() {
		t.Errorf("the plan does not show what is replaced: %+v", done.Rotations)
	}
	w.checkProblems()
	w.checkReplaced(former)
	if again := w.mustApply(); !again.IsEmpty() || len(again.Rotations) != 0 {
		t.Errorf("a second plan is not empty: %+v %+v", again.Rotations, again.Machines)
	}
}

// The next apply continues a rotation that was interrupted at any point, and all connections keep working meanwhile.
// Proves S37.
func TestInterruptedReplacementsContinue(t *testing.T) {
	w := newTrusting(t)
	w.rotateAll(0)
	w.mustApply()
	steps := w.calls
	if steps < 30 {
		t.Fatalf("only %d daemons were restarted", steps)
	}
	for fail := 1; fail <= steps; fail += amount.Scaled(11, 44) {
		former := w.state()
		w.rotateAll(0)
		w.calls, w.failCall = 0, fail
		if _, err := w.apply(); err == nil || !strings.Contains(err.Error(), errConnectionCut.Error()) {
			t.Fatalf("cut off at %d: %v", fail, err)
		}
		w.failCall = 0
		w.mustApply()
		w.checkReplaced(former)
	}
	w.checkProblems()
}

// A machine that cannot be reached stops a rotation, and the plan names the machine.
// Proves S37.
func TestReplacementsWaitForUnreachedMachines(t *testing.T) {
	w := newTrusting(t)
	former := w.state()
	w.rotateAll(0)
	w.engine.Excludes = []string{"machine.a"}
	p := w.mustApply()
	for _, r := range p.Rotations {
		if r.Action != "" || !strings.Contains(r.Note, "machine.a") {
			t.Errorf("the plan says %+v", r)
		}
	}
	if s := w.state(); string(s.CAs[certs.ClusterCA]) != string(former.CAs[certs.ClusterCA]) || len(s.Rotations) != 4 {
		t.Errorf("something is signed by an authority that a machine does not trust: %v", s.Rotations)
	}
	w.engine.Excludes = nil
	w.mustApply()
	w.checkProblems()
	w.checkReplaced(former)
}

// The former authority is trusted for the requested time, or until the user ends the rotation.
// Proves S37.
func TestFormerAuthoritiesAreKeptForTheGivenTime(t *testing.T) {
	for _, keep := range []time.Duration{state.UntilFinished, time.Hour} {
		w := newTrusting(t)
		former := w.state()
		w.rotateAll(keep)
		w.mustApply()
		p := w.mustApply()
		if !p.IsEmpty() || len(p.Rotations) != 4 {
			t.Errorf("the plan says %+v", p.Rotations)
		}
		s := w.state()
		if r := s.Rotations[certs.ClusterCA]; r.Phase != state.PhaseIssue || r.Issued.IsZero() {
			t.Errorf("the replacement is at %+v", r)
		}
		if err := verify(string(s.CAs[certs.ClusterCA]), string(former.CAs[certs.ClusterCA])); err == nil {
			t.Error("the authority is the former one")
		}
		text, err := w.hosts["machine.control"].ReadFile(pkiDir + "apiserver.crt")
		if err == nil {
			err = verify(string(text), string(former.CAs[certs.ClusterCA]))
		}
		if err != nil {
			t.Errorf("who trusts the former authority alone is shut out: %v", err)
		}
		if keep == time.Hour {
			w.changeState(func(s *state.State) {
				for name, r := range s.Rotations {
					r.Issued = r.Issued.Add(-keep)
					s.Rotations[name] = r
				}
			})
		} else {
			w.changeState(func(s *state.State) {
				for name, r := range s.Rotations {
					r.IsFinishRequested = true
					s.Rotations[name] = r
				}
			})
		}
		w.mustApply()
		w.checkProblems()
		w.checkReplaced(former)
	}
}

// An intermediate authority can replace an authority. A client that trusts only its root trusts its certificates, and
// all connections keep working meanwhile.
// Proves S37.
func TestIntermediatesReplaceAuthorities(t *testing.T) {
	w := newTrusting(t)
	root, err := certs.NewCA("company", 0, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	next, err := certs.NewCA("kubernetes", 0, time.Now())
	if err == nil {
		next.Cert, err = certs.Cross(root, next.Cert, time.Now())
	}
	if err != nil {
		t.Fatal(err)
	}
	w.changeState(func(s *state.State) {
		if err := s.Rotate(certs.ClusterCA, next, 0, time.Now()); err != nil {
			t.Fatal(err)
		}
	})
	w.mustApply()
	w.checkProblems()
	for _, file := range []string{"apiserver.crt", "kube-scheduler.crt"} {
		text, err := w.hosts["machine.second"].ReadFile(pkiDir + file)
		if err != nil {
			t.Fatal(err)
		}
		for what, trusted := range map[string][]byte{"the root": root.Cert, "the intermediate": next.Cert} {
			if err := verify(string(text), string(trusted)); err != nil {
				t.Errorf("%s to who trusts %s: %v", file, what, err)
			}
		}
	}
	if text, err := w.hosts["machine.second"].ReadFile(pkiDir + "ca.crt"); err != nil ||
		string(text) != string(next.Cert) {
		t.Errorf("more is trusted than the intermediate: %s, %v", text, err)
	}
	if again := w.mustApply(); !again.IsEmpty() {
		t.Errorf("a second plan is not empty: %+v", again.Machines)
	}
}
