// Package accounttoken fills Secrets of the type kubernetes.io/service-account-token with a token of their service
// account. Such Secrets are created by hand, for clients outside of the cluster that cannot get a token another way.
// The token is valid until the Secret or the account is deleted. Pods have tokens of their own. The API server decides
// whether a token is valid.
package accounttoken

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
)

type controller struct {
	loop.Context
	loop.Loop
	ownInformers *informers.Factory // watches only Secrets of that type
	secrets      corelisters.SecretLister
	accounts     corelisters.ServiceAccountLister
}

// New returns the controller.
func New(c loop.Context) loop.Controller {
	own := informers.New(c.Client, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("type", string(corev1.SecretTypeServiceAccountToken)).String()
	}))
	secrets, accounts := informers.Secrets(own), informers.ServiceAccounts(c.Informers)
	t := &controller{Context: c, ownInformers: own, secrets: secrets.Lister(), accounts: accounts.Lister()}
	t.Loop = loop.Loop{
		Name:            "serviceaccount-token",
		QueueMetricName: "serviceaccount_tokens_secret",
		Context:         c,
		Sync:            t.sync,
		Synced: []cache.InformerSynced{
			secrets.Informer().HasSynced, accounts.Informer().HasSynced},
	}
	loop.OnState(secrets.Informer(), t.Add)
	c.On(accounts.Informer(), t.enqueueSecrets)
	return t
}

// Run implements loop.Controller.
func (t *controller) Run(ctx context.Context) error {
	t.ownInformers.StartWithContext(ctx)
	defer t.ownInformers.Shutdown()
	return t.Loop.Run(ctx)
}

// enqueueSecrets queues the Secrets of an account that was created, changed or deleted.
func (t *controller) enqueueSecrets(obj any) {
	account, ok := obj.(metav1.Object)
	if !ok {
		return
	}
	// List from a cache fails only for an invalid selector.
	list, _ := t.secrets.Secrets(account.GetNamespace()).List(labels.Everything())
	for _, s := range list {
		if s.Annotations[corev1.ServiceAccountNameKey] == account.GetName() {
			t.Add(s)
		}
	}
}

func (t *controller) sync(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return fmt.Errorf("read the key %q: %w", key, err)
	}
	secret, err := t.secrets.Secrets(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	account, err := t.accountOf(ctx, secret)
	if err != nil || secret.DeletionTimestamp != nil {
		return err
	}
	if account == nil {
		err := t.Client.CoreV1().
			Secrets(namespace).
			Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &secret.UID,
				ResourceVersion: &secret.ResourceVersion}})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	if t.Config.ServiceAccountPrivateKeyFile == "" {
		return nil // tokens are signed elsewhere, and so filled in elsewhere
	}
	ca, err := t.RootCA()
	if err != nil {
		return err
	}
	filled, err := fillSecret(secret, account, ca,
		func() (string, error) { return signToken(t.Config.ServiceAccountPrivateKeyFile, secret, account) })
	if err != nil || filled == nil {
		return err
	}
	if _, err = t.Client.CoreV1().Secrets(namespace).Update(ctx, filled, metav1.UpdateOptions{}); apierrors.IsNotFound(
		err,
	) {
		return nil
	}
	return err
}

// accountOf returns the account whose token the Secret should have. It returns nil if the API server confirms that the
// account is gone.
func (t *controller) accountOf(ctx context.Context, s *corev1.Secret) (*corev1.ServiceAccount, error) {
	name, uid := s.Annotations[corev1.ServiceAccountNameKey], s.Annotations[corev1.ServiceAccountUIDKey]
	matches := func(a *corev1.ServiceAccount) bool { return uid == "" || uid == string(a.UID) }
	if a, err := t.accounts.ServiceAccounts(s.Namespace).Get(name); err == nil && matches(a) {
		return a, nil
	}
	a, err := t.Client.CoreV1().ServiceAccounts(s.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && !matches(a) {
		return nil, nil
	}
	return a, err
}
