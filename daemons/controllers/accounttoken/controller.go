// Package accounttoken fills Secrets of the type kubernetes.io/service-account-token: whoever makes one by hand, for
// something outside of the cluster that knows no other way, finds a token for the service account in it that holds
// until the Secret or the account goes. What runs in pods has tokens of its own; whether a token is good is the API
// server's to say.
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
	own      *informers.Factory // of such Secrets alone: the others are nobody's business here
	secrets  corelisters.SecretLister
	accounts corelisters.ServiceAccountLister
}

// New returns the controller.
func New(c loop.Context) loop.Controller {
	own := informers.New(c.Client, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("type", string(corev1.SecretTypeServiceAccountToken)).String()
	}))
	secrets, accounts := informers.Secrets(own), informers.ServiceAccounts(c.Informers)
	t := &controller{Context: c, own: own, secrets: secrets.Lister(), accounts: accounts.Lister()}
	t.Loop = loop.Loop{
		Name:    "serviceaccount-token",
		Counted: "serviceaccount_tokens_secret",
		Context: c,
		Sync:    t.sync,
		Synced: []cache.InformerSynced{
			secrets.Informer().HasSynced, accounts.Informer().HasSynced},
	}
	loop.On(secrets.Informer(), t.Add)
	c.On(accounts.Informer(), t.wake)
	return t
}

// Run implements loop.Controller.
func (t *controller) Run(ctx context.Context) error {
	t.own.StartWithContext(ctx)
	defer t.own.Shutdown()
	return t.Loop.Run(ctx)
}

// wake queues the Secrets of an account that came, changed or went.
func (t *controller) wake(obj any) {
	account, ok := obj.(metav1.Object)
	if !ok {
		return
	}
	// What the cache cannot list it does not have.
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
	account, err := t.account(ctx, secret)
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
		return nil // who signs tokens elsewhere fills them in elsewhere
	}
	ca, err := t.RootCA()
	if err != nil {
		return err
	}
	filled, err := fill(
		secret,
		account,
		ca,
		func() (string, error) { return sign(t.Config.ServiceAccountPrivateKeyFile, secret, account) },
	)
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

// account is whose token the Secret is to have; nil when that account is gone, of which the server has the last word.
func (t *controller) account(ctx context.Context, s *corev1.Secret) (*corev1.ServiceAccount, error) {
	name, uid := s.Annotations[corev1.ServiceAccountNameKey], s.Annotations[corev1.ServiceAccountUIDKey]
	is := func(a *corev1.ServiceAccount) bool { return uid == "" || uid == string(a.UID) }
	if a, err := t.accounts.ServiceAccounts(s.Namespace).Get(name); err == nil && is(a) {
		return a, nil
	}
	a, err := t.Client.CoreV1().ServiceAccounts(s.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && !is(a) {
		return nil, nil
	}
	return a, err
}
