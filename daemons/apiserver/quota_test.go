package apiserver_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"clusterctl/certs"
	"clusterctl/daemons/store/memory"
)

// Concurrent writes through several servers never exceed a quota, and can use all of it.
// Proves S12.
func TestConcurrentWritesNeverExceedAQuota(t *testing.T) {
	s := memory.New()
	t.Cleanup(s.Close)
	var clients []*kubernetes.Clientset
	for range 3 {
		c := serveCluster(t, s)
		clients = append(clients, kubernetes.NewForConfigOrDie(c.configFor(certs.Admin())))
	}
	ctx := context.Background()
	hard := corev1.ResourceList{"services": resource.MustParse("20"), "services.loadbalancers": resource.MustParse("5")}
	if _, err := clients[0].CoreV1().ResourceQuotas("default").Create(ctx,
		&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range clients { // all servers have the quota
		waitUntil(t, func() error {
			_, err := c.CoreV1().ResourceQuotas("default").Get(ctx, "q", metav1.GetOptions{ResourceVersion: "0"})
			return err
		})
	}
	var wg sync.WaitGroup
	var made, refused atomic.Int32
	for i := range 60 {
		wg.Go(func() {
			svc := &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s%d", i)},
				Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
			}
			_, err := clients[i%3].CoreV1().Services("default").Create(ctx, svc, metav1.CreateOptions{})
			switch {
			case err == nil:
				made.Add(1)
			case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota: q, requested: "+
				"services=1, used: services=20, limited: services=20"):
				refused.Add(1)
			default:
				t.Errorf("service %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	list, err := clients[0].CoreV1().Services("default").List(ctx, metav1.ListOptions{})
	if err != nil || made.Load()+1 != 20 || len(list.Items) != 20 { // the kubernetes service existed before
		t.Errorf("%d were made and %d refused of 60; there are %d, %v", made.Load(), refused.Load(), len(list.Items),
			err)
	}
	// Updates that need more quota are limited, too.
	var changed atomic.Int32
	for i := range list.Items {
		wg.Go(func() {
			if list.Items[i].Name == "kubernetes" {
				return
			}
			_, err := clients[i%3].CoreV1().
				Services("default").
				Patch(ctx, list.Items[i].Name, "application/merge-patch+json",
					[]byte(`{"spec":{"type":"LoadBalancer"}}`), metav1.PatchOptions{})
			if err == nil {
				changed.Add(1)
			} else if !strings.Contains(err.Error(), "exceeded quota: q, requested: services.loadbalancers=1") {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if changed.Load() != 5 {
		t.Errorf("%d services became load balancers, want 5", changed.Load())
	}
}
