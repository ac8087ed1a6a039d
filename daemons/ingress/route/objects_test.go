package route

import (
	"crypto/x509"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"clusterctl/certs"
)

// recordedTargets records the last update of a backend.
type recordedTargets struct {
	list    []netip.AddrPort
	updates int
	closed  bool
}

func (t *recordedTargets) Update(list []netip.AddrPort) { t.list, t.updates = list, t.updates+1 }

func (t *recordedTargets) Close() { t.closed = true }

// testRequest is a Request with given properties.
type testRequest struct {
	method  string
	headers map[string]string
	query   map[string]string
}

func (r testRequest) Method() string { return r.method }

func (r testRequest) Header(name string) (string, bool) { v, ok := r.headers[name]; return v, ok }

func (r testRequest) Query(name string) (string, bool) { v, ok := r.query[name]; return v, ok }

func newBuilder() *Builder {
	b := NewBuilder(
		Options{
			Policy:  Policy{Protocol: HTTP, RedirectTLS: true},
			Targets: func(BackendKey) Targets { return &recordedTargets{} },
		},
	)
	b.SetClass(
		"clusterctl",
		&networkingv1.IngressClass{
			ObjectMeta: metav1.ObjectMeta{Name: "clusterctl"},
			Spec:       networkingv1.IngressClassSpec{Controller: Controller},
		},
	)
	return b
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// ingressOf returns an Ingress from lines of the form "host path type service[:port]". "-" is an empty field.
func ingressOf(name string, age time.Duration, lines ...string) *networkingv1.Ingress {
	in := &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         "default",
			Name:              name,
			CreationTimestamp: metav1.NewTime(epoch.Add(-age)),
			Annotations:       map[string]string{},
		},
		Spec: networkingv1.IngressSpec{IngressClassName: ptr.To("clusterctl")},
	}
	for _, text := range lines {
		words := strings.Fields(text)
		for i := range words {
			if words[i] == "-" {
				words[i] = ""
			}
		}
		service, port, _ := strings.Cut(words[3], ":")
		backend := networkingv1.IngressBackend{
			Service: &networkingv1.IngressServiceBackend{
				Name: service,
				Port: networkingv1.ServiceBackendPort{Number: 80},
			},
		}
		if port != "" {
			backend.Service.Port = networkingv1.ServiceBackendPort{Name: port}
		}
		if words[2] == "default" {
			in.Spec.DefaultBackend = &backend
			continue
		}
		in.Spec.Rules = append(
			in.Spec.Rules,
			networkingv1.IngressRule{Host: words[0], IngressRuleValue: networkingv1.IngressRuleValue{
				HTTP: &networkingv1.HTTPIngressRuleValue{
					Paths: []networkingv1.HTTPIngressPath{
						{Path: words[1], PathType: ptr.To(networkingv1.PathType(words[2])), Backend: backend},
					},
				},
			}},
		)
	}
	return in
}

func setIngresses(b *Builder, all ...*networkingv1.Ingress) {
	for _, in := range all {
		b.SetIngress(Key{in.Namespace, in.Name}, in)
	}
}

// serviceFor returns the service to which a request goes.
func serviceFor(t *Table, url string) string {
	host, path, _ := strings.Cut(url, "/")
	rule := t.Find([]byte(host), []byte("/"+path), testRequest{})
	if rule == nil {
		return "-"
	}
	return rule.Source.Service
}

func checkServices(t *testing.T, table *Table, want map[string]string) {
	t.Helper()
	for _, url := range slices.Sorted(maps.Keys(want)) {
		if got := serviceFor(table, url); got != want[url] {
			t.Errorf("%s: %s, want %s", url, got, want[url])
		}
	}
}

func service(name string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.ServiceSpec{Ports: ports},
	}
}

// sliceOf returns a slice with endpoints in the form "address[!][~]": ! means not ready, ~ means terminating and
// serving.
func sliceOf(port string, number int32, endpoints ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &port, Port: &number}},
	}
	for _, e := range endpoints {
		address := strings.TrimRight(e, "!~")
		ready, ending := address == e, strings.HasSuffix(e, "~")
		if strings.Contains(address, ":") {
			s.AddressType = discoveryv1.AddressTypeIPv6
		}
		s.Endpoints = append(
			s.Endpoints,
			discoveryv1.Endpoint{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{
				Ready: &ready, Serving: ptr.To(ready || ending), Terminating: &ending,
			}},
		)
	}
	return s
}

func secretOf(t *testing.T, names ...string) *corev1.Secret {
	ca, err := certs.NewCA("test", 0, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := certs.Issue(ca,
		certs.Request{CommonName: names[0], Hosts: names, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}},
		time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{
		Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: pair.Cert, corev1.TLSPrivateKeyKey: pair.Key},
	}
}
