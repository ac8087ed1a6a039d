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

// hanging is a store that, on demand, does not answer calls that need a majority.
type hanging struct {
	store.Store
	hangs atomic.Bool
}

func (h *hanging) hang(ctx context.Context) error {
	if !h.hangs.Load() {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (h *hanging) Get(ctx context.Context, key string) (*store.KV, error) {
	if err := h.hang(ctx); err != nil {
		return nil, err
	}
	return h.Store.Get(ctx, key)
}

func (h *hanging) Commit(ctx context.Context, t store.Txn) (store.Result, error) {
	if err := h.hang(ctx); err != nil {
		return store.Result{}, err
	}
	return h.Store.Commit(ctx, t)
}

func (h *hanging) Revision(ctx context.Context) (int64, error) {
	if err := h.hang(ctx); err != nil {
		return 0, err
	}
	return h.Store.Revision(ctx)
}

func (h *hanging) Answers(ctx context.Context) error {
	if err := h.hang(ctx); err != nil {
		return err
	}
	return h.Store.Answers(ctx)
}

// If the store has lost its majority, consistent reads and writes fail in time. Other reads are answered, and the
// server reports that it is alive but not ready.
// Proves S10.
func TestAStoreThatHangsFailsRequestsInTime(t *testing.T) {
	inner := memory.New()
	t.Cleanup(inner.Close)
	s := &hanging{Store: inner}
	c := serve(t, s, func(cfg *config.APIServer) { cfg.RequestTimeout = time.Second })
	client := kubernetes.NewForConfigOrDie(c.as(certs.Admin()))
	ctx := context.Background()
	s.hangs.Store(true)
	began := time.Now()
	if _, err := client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{}); !apierrors.IsTimeout(err) {
		t.Errorf("a read that must be fresh: %v", err)
	}
	if _, err := client.CoreV1().ConfigMaps("default").Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{}); !apierrors.IsTimeout(
		err,
	) {
		t.Errorf("a write: %v", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("two requests with a second each took %s", took)
	}
	if _, err := client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{ResourceVersion: "0"}); err != nil {
		t.Errorf("a read that need not be fresh: %v", err)
	}
	wait(t, func() error {
		if c.well("/readyz") == nil {
			return errors.New("the server says that it is ready")
		}
		return nil
	})
	if c.well("/readyz/etcd") == nil || c.well("/livez") != nil || c.well("/readyz/informer-sync") != nil {
		t.Error("the server does not say that the store alone is to blame")
	}
	s.hangs.Store(false)
	wait(t, func() error { return c.well("/readyz") })
	wait(t, func() error { // a check of the store in progress ends first
		_, err := client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}
