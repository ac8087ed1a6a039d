package backend_test

import (
	"context"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/apiserver/backend"
)

// serviceObjects holds one service, example, and a slice of its endpoints.
type serviceObjects struct {
	service *corev1.Service
	slice   *discoveryv1.EndpointSlice
}

func (c serviceObjects) Get(_ schema.GroupResource, _, name string) (runtime.Object, bool) {
	return c.service, name == c.service.Name
}

func (c serviceObjects) List(schema.GroupResource, string) []runtime.Object {
	return []runtime.Object{c.slice}
}
func (c serviceObjects) Revision(schema.GroupResource) int64 { return 1 }

func portOf(t *testing.T, address string) int32 {
	t.Helper()
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return int32(n)
}

// Proves S12.
func TestServicesAreReachedAtReadyEndpoints(t *testing.T) {
	// httptest's certificate is valid for example.com, and for no service.
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(`{"path":"` + r.URL.String() + `","host":"` + r.Host + `"}`))
	}))
	defer server.Close()
	// Nothing listens at the second endpoint, which has the same port.
	c := serviceObjects{
		&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "n"},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "web", Port: 443}}},
		},
		&discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{discoveryv1.LabelServiceName: "s"}},
			Ports: []discoveryv1.EndpointPort{
				{Name: new("web"), Port: new(portOf(t, server.Listener.Addr().String()))},
			},
			Endpoints: []discoveryv1.Endpoint{
				{Addresses: []string{"127.0.0.1"}}, {Addresses: []string{"127.0.0.2"}},
				{Addresses: []string{"127.0.0.3"}, Conditions: discoveryv1.EndpointConditions{Ready: new(false)}},
			},
		},
	}
	reach := backend.New(c)
	hosts, err := reach.Endpoints(backend.Target{Namespace: "n", Service: "s", Port: 443})
	if err != nil || len(hosts) != 2 {
		t.Fatalf("%v, %v", hosts, err)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	to, err := backend.NewWebhook(
		admissionregistrationv1.WebhookClientConfig{
			CABundle: ca,
			Service:  &admissionregistrationv1.ServiceReference{Namespace: "n", Name: "s", Path: new("/look")},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct{ Path, Host string }
	if err := reach.Call(context.Background(), to, 5*time.Second, "", &answer); err == nil ||
		!strings.Contains(err.Error(), "s.n.svc") {
		t.Errorf("a certificate of another name: %v", err)
	}
	to.Target.CABundle, to.Target.Insecure = nil, true
	for range 20 {
		if err := reach.Call(context.Background(), to, 5*time.Second, "", &answer); err != nil ||
			answer.Path != "/look?timeout=5s" ||
			answer.Host != "s.n.svc:443" {
			t.Fatalf("%+v, %v", answer, err)
		}
	}
	for want, target := range map[string]backend.Target{
		`service "t" not found`:   {Namespace: "n", Service: "t", Port: 443},
		`service "s" has no port`: {Namespace: "n", Service: "s", Port: 80},
	} {
		if _, err := reach.Endpoints(target); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	c.slice.Endpoints = c.slice.Endpoints[2:]
	to.Target.Insecure = true
	if err := reach.Call(context.Background(), to, 5*time.Second, "", &answer); err == nil ||
		!strings.Contains(err.Error(), `no endpoints available for service "s"`) {
		t.Errorf("%v", err)
	}
}
