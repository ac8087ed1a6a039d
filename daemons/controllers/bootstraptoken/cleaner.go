package bootstraptoken

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
)

type cleaner struct {
	loop.Context
	loop.Loop
	secrets corelisters.SecretLister
}

// NewCleaner returns the controller that deletes expired tokens.
func NewCleaner(c loop.Context) loop.Controller {
	secrets := informers.Secrets(c.Informers)
	t := &cleaner{Context: c, secrets: secrets.Lister()}
	t.Loop = loop.Loop{
		Name:            "token-cleaner",
		QueueMetricName: "token_cleaner",
		Context:         c,
		Workers:         1,
		Sync:            t.sync,
		Synced:          []cache.InformerSynced{secrets.Informer().HasSynced},
	}
	c.On(secrets.Informer(), func(obj any) {
		if isToken(obj.(*corev1.Secret)) {
			t.Add(obj)
		}
	})
	return t
}

func (t *cleaner) sync(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil
	}
	s, err := t.secrets.Secrets(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	remaining, isOver := remainingTime(s, t.Now())
	switch {
	case !isToken(s) || s.DeletionTimestamp != nil:
		return nil
	case remaining > 0:
		t.AddAfter(key, remaining)
		return nil
	case !isOver:
		return nil
	}
	// The deletion fails if the token was changed in between, for example to extend it.
	if err := t.Client.CoreV1().Secrets(namespace).Delete(ctx, name, loop.IfUnchanged(s)); err != nil &&
		!apierrors.IsNotFound(err) {
		return fmt.Errorf("delete the expired bootstrap token %s: %w", name, err)
	}
	return nil
}
