package serviceaccount

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/config"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes/fake"
)

func TestPublishedBundlesAreCounted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, []byte("a bundle"), 0o600); err != nil {
		t.Fatal(err)
	}
	client, registry := fake.NewClientset(), prometheus.NewPedanticRegistry()
	var answer error
	client.PrependReactor("create", "configmaps",
		func(clienttesting.Action) (bool, runtime.Object, error) { return answer != nil, nil, answer })
	factory := informers.New(client)
	s, ok := New(loop.Context{Client: client, Informers: factory, Log: slog.New(slog.DiscardHandler),
		Config: config.ControllerManager{RootCAFile: file}, Metrics: registry}).(*controller)
	if !ok {
		t.Fatal("it is no controller of service accounts")
	}
	if err := informers.Namespaces(factory).Informer().GetIndexer().Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "n"}}); err != nil {
		t.Fatal(err)
	}
	for _, answer = range []error{apierrors.NewForbidden(corev1.Resource("configmaps"), rootCA, nil),
		errors.New("the API is away"), fmt.Errorf("post: %w", apierrors.NewTooManyRequests("later", 1)), nil} {
		if err := s.sync(t.Context(), "n"); (err == nil) != (answer == nil) {
			t.Errorf("answered %v, it says %v", answer, err)
		}
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP root_ca_cert_publisher_sync_total How often a namespace's CA bundle was looked at, by the code of the answer.
# TYPE root_ca_cert_publisher_sync_total counter
root_ca_cert_publisher_sync_total{code="200"} 1
root_ca_cert_publisher_sync_total{code="403"} 1
root_ca_cert_publisher_sync_total{code="429"} 1
root_ca_cert_publisher_sync_total{code="500"} 1
`), "root_ca_cert_publisher_sync_total"); err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(s.publishDuration); n != 4 {
		t.Errorf("%d series of how long it took", n)
	}
}
