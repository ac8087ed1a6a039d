package ingress

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"clusterctl/certs"
	"clusterctl/daemons/config"
	"clusterctl/daemons/ingress/route"
	"clusterctl/daemons/run"
	"clusterctl/tests/tools/amount"
)

const ingressCount = 10_000

// newLargeWatch returns a watch with many Ingresses, each with its own service and secret, and as many unused secrets.
// one returns an Ingress. newLargeWatch also returns a function that creates such a secret.
func newLargeWatch(
	t testing.TB,
	one func(i int, path string) *networkingv1.Ingress,
) (*watch, func(name string) *corev1.Secret) {
	t.Helper()
	ca, err := certs.NewCA("test", 0, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := certs.Issue(
		ca,
		certs.Request{
			CommonName: "x.example",
			Hosts:      []string{"x.example"},
			Usages:     []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		},
		time.Now(),
	)
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.DefaultIngress()
	log := slog.New(slog.DiscardHandler)
	engine, err := newEngine(cfg, run.Env{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	w := newWatch(cfg, engine, newEntrySockets(cfg, engine, nil, log))
	w.setClass(
		&networkingv1.IngressClass{
			ObjectMeta: metav1.ObjectMeta{Name: "c"},
			Spec:       networkingv1.IngressClassSpec{Controller: route.Controller},
		},
		false,
	)
	secret := func(name string) *corev1.Secret { // with separate bytes, as delivered by a watch
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Type: corev1.SecretTypeTLS,
			Data: map[string][]byte{
				corev1.TLSCertKey:       bytes.Clone(pair.Cert),
				corev1.TLSPrivateKeyKey: bytes.Clone(pair.Key),
			}}
	}
	for i := range ingressCount {
		w.passSecret(secret(fmt.Sprint("i", i)))
		w.passSecret(secret(fmt.Sprint("unused", i)))
		w.setService(
			&corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("i", i)},
				Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
			},
			false,
		)
		w.setIngress(one(i, "/"), false)
	}
	w.updateTable(context.Background())
	return w, secret
}

// ingressWithHost returns an Ingress with its own host.
func ingressWithHost(i int, path string) *networkingv1.Ingress {
	return ingressOf(i, fmt.Sprintf("h%d.example", i), path)
}

// ingressWithPath returns an Ingress with its own paths of a shared host.
func ingressWithPath(i int, path string) *networkingv1.Ingress {
	return ingressOf(i, "shared.example", fmt.Sprintf("/i%d%s", i, path))
}

// ingressWithSharedPath returns an Ingress with a shared path of a shared host.
func ingressWithSharedPath(i int, path string) *networkingv1.Ingress {
	return ingressOf(i, "shared.example", path)
}

func ingressOf(i int, host, path string) *networkingv1.Ingress {
	name := fmt.Sprint("i", i)
	return &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "u", Generation: int64(len(path))},
		Spec: networkingv1.IngressSpec{
			IngressClassName: ptr.To("c"),
			TLS:              []networkingv1.IngressTLS{{Hosts: []string{host}, SecretName: name}},
			Rules: []networkingv1.IngressRule{
				{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
					Paths: []networkingv1.HTTPIngressPath{
						{
							Path:     path,
							PathType: ptr.To(networkingv1.PathTypePrefix),
							Backend: networkingv1.IngressBackend{
								Service: &networkingv1.IngressServiceBackend{
									Name: name,
									Port: networkingv1.ServiceBackendPort{Number: 80},
								}},
						},
					}}}},
			},
		},
	}
}

// singleChanges returns changes of one Ingress among many, by name. Their argument is the number of the round.
func (w *watch) singleChanges(
	secret func(string) *corev1.Secret,
	one func(i int, path string) *networkingv1.Ingress,
) map[string]func(round int) {
	return map[string]func(int){
		"another path": func(round int) {
			w.setIngress(one(round*7919%ingressCount,
				[]string{"/a", "/ab"}[round%2]), false)
		},
		"a renewed certificate": func(round int) {
			w.passSecret(secret(fmt.Sprint("i",
				round*7919%ingressCount)))
		},
		"a secret that no Ingress names": func(round int) {
			w.passSecret(secret(fmt.Sprint("unused",
				round*7919%ingressCount)))
		},
		"one that comes or goes": func(round int) {
			w.setIngress(one(ingressCount, "/"), round%2 == 1)
		},
	}
}

// The change of one Ingress among 10,000 costs only its own work, and rebuilds nothing of the others.
// Proves S32.
func TestOneChangeAmongManyIngressesCostsLittle(t *testing.T) {
	w, secret := newLargeWatch(t, ingressWithHost)
	w.checkCosts(t, w.singleChanges(secret, ingressWithHost))
	host := "h77.example"
	if rule := w.table.Find([]byte(host), []byte("/x"), nil); rule == nil || w.table.Certificate(host) == nil {
		t.Errorf("%s has rule %v", host, rule)
	}
	if rule := w.table.Find([]byte("h10000.example"), []byte("/x"), nil); rule != nil ||
		w.table.Certificate("h10000.example") != nil {
		t.Errorf("what has gone has rule %v", rule)
	}
}

// The same applies if all Ingresses share a host: only the rules of the changed paths are rebuilt.
// Proves S32.
func TestOneChangeAmongManyIngressesOfOneHostCostsLittle(t *testing.T) {
	w, secret := newLargeWatch(t, ingressWithPath)
	w.checkCosts(t, w.singleChanges(secret, ingressWithPath))
	host := []byte("shared.example")
	for i, path := range map[int]string{0: "/a", 77: "/x", ingressCount - 1: "/"} { // the first has changed
		want := fmt.Sprint("i", i)
		if rule := w.table.Find(host, fmt.Appendf(nil, "/i%d%s", i, path), nil); rule == nil ||
			rule.Source.Name != want {
			t.Errorf("Ingress %s has rule %v", want, rule)
		}
	}
	if rule := w.table.Find(host, fmt.Appendf(nil, "/i%d/", ingressCount), nil); rule != nil {
		t.Errorf("what has gone has rule %v", rule)
	}
}

// checkCosts checks that changes allocate little memory.
func (w *watch) checkCosts(t *testing.T, changes map[string]func(int)) {
	t.Helper()
	rounds := amount.Scaled(200, 40)
	const maximum = 128 << 10
	for what, change := range changes {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for round := range rounds {
			change(round)
			w.updateTable(context.Background())
		}
		runtime.ReadMemStats(&after)
		if each := (after.TotalAlloc - before.TotalAlloc) / uint64(rounds); each > maximum {
			t.Errorf("%s: %d KiB are allocated for it", what, each>>10)
		}
	}
}

// The memory of many Ingresses and secrets is limited, and unused secrets are not parsed.
// Proves S32.
func TestManyIngressesAndSecretsFitIntoMemory(t *testing.T) {
	used := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := used()
	w, _ := newLargeWatch(t, ingressWithHost)
	const maximum = 160 << 20
	grown := used() - before
	if grown > maximum {
		t.Errorf("%d Ingresses and %d secrets take %d MiB", ingressCount, 2*ingressCount, grown>>20)
	}
	t.Logf("%d Ingresses and %d secrets take %d MiB", ingressCount, 2*ingressCount, grown>>20)
	runtime.KeepAlive(w)
}

// BenchmarkOneOfManyIngresses measures one change among 10,000 Ingresses until the engine has its table: with own
// hosts, with paths of one host, and with one shared path.
func BenchmarkOneOfManyIngresses(b *testing.B) {
	for kind, one := range map[string]func(int, string) *networkingv1.Ingress{"own hosts": ingressWithHost,
		"one host": ingressWithPath, "one path": ingressWithSharedPath} {
		w, secret := newLargeWatch(b, one)
		for what, change := range w.singleChanges(secret, one) {
			b.Run(kind+"/"+what, func(b *testing.B) {
				b.ReportAllocs()
				for round := range b.N {
					change(round)
					w.updateTable(context.Background())
				}
			})
		}
	}
}

// passSecret passes a Secret to the watch, as if it were followed.
func (w *watch) passSecret(s *corev1.Secret) {
	w.setSecret(context.Background(), route.Key{Namespace: s.Namespace, Name: s.Name}, s)
}
