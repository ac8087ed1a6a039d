package apiserver_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"clusterctl/certs"
	"clusterctl/daemons/config"
	"clusterctl/daemons/store"
	"clusterctl/daemons/store/memory"
)

// hangingStore is a store that, on demand, does not answer calls that need a majority.
type hangingStore struct {
	store.Store
	isHanging atomic.Bool
}

func (h *hangingStore) wait(ctx context.Context) error {
	if !h.isHanging.Load() {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (h *hangingStore) Get(ctx context.Context, key string) (*store.KeyValue, error) {
	if err := h.wait(ctx); err != nil {
		return nil, err
	}
	return h.Store.Get(ctx, key)
}

func (h *hangingStore) Commit(ctx context.Context, t store.Txn) (store.Result, error) {
	if err := h.wait(ctx); err != nil {
		return store.Result{}, err
	}
	return h.Store.Commit(ctx, t)
}

func (h *hangingStore) Revision(ctx context.Context) (int64, error) {
	if err := h.wait(ctx); err != nil {
		return 0, err
	}
	return h.Store.Revision(ctx)
}

func (h *hangingStore) CheckHealth(ctx context.Context) error {
	if err := h.wait(ctx); err != nil {
		return err
	}
	return h.Store.CheckHealth(ctx)
}

// If the store has lost its majority, consistent reads and writes fail in time. Other reads are answered, and the
// server reports that it is alive but not ready.
// Proves S10.
func TestRequestsFailInTimeWithoutAStoreMajority(t *testing.T) {
	inner := memory.New()
	t.Cleanup(inner.Close)
	s := &hangingStore{Store: inner}
	c := serveCluster(t, s, func(cfg *config.APIServer) { cfg.RequestTimeout = time.Second })
	client := kubernetes.NewForConfigOrDie(c.configFor(certs.Admin()))
	ctx := context.Background()
	s.isHanging.Store(true)
	start := time.Now()
	if _, err := client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{}); !apierrors.IsTimeout(err) {
		t.Errorf("a read that must be fresh: %v", err)
	}
	if _, err := client.CoreV1().ConfigMaps("default").Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{}); !apierrors.IsTimeout(
		err,
	) {
		t.Errorf("a write: %v", err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("two requests with a second each took %s", took)
	}
	if _, err := client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{ResourceVersion: "0"}); err != nil {
		t.Errorf("a read that need not be fresh: %v", err)
	}
	waitUntil(t, func() error {
		if c.checkHealth("/readyz") == nil {
			return errors.New("the server says that it is ready")
		}
		return nil
	})
	if c.checkHealth("/readyz/etcd") == nil || c.checkHealth("/livez") != nil ||
		c.checkHealth("/readyz/informer-sync") != nil {
		t.Error("the server does not say that the store alone is to blame")
	}
	s.isHanging.Store(false)
	waitUntil(t, func() error { return c.checkHealth("/readyz") })
	waitUntil(t, func() error { // a check of the store in progress ends first
		_, err := client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}
