// Package legacytoken removes service account tokens in Secrets that were generated for the account and have not been
// used for a long time. It first marks them invalid, which can be undone, and deletes them after the same time again.
// The API server records their use.
package legacytoken

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
)

const (
	// trackingConfigMap is the ConfigMap in kube-system with the day since which the use of tokens is recorded.
	trackingConfigMap = "kube-apiserver-legacy-service-account-token-tracking"
	checkInterval     = 24 * time.Hour
)

type controller struct {
	loop.Context
	loop.Loop
	secrets  corelisters.SecretLister
	accounts corelisters.ServiceAccountLister
	pods     corelisters.PodLister
}

// New returns the controller.
func New(c loop.Context) loop.Controller {
	secrets, accounts, pods := informers.Secrets(c.Informers), informers.ServiceAccounts(c.Informers), informers.Pods(
		c.Informers,
	)
	l := &controller{Context: c, secrets: secrets.Lister(), accounts: accounts.Lister(), pods: pods.Lister()}
	l.Loop = loop.Loop{
		Name:    "legacy-serviceaccount-token-cleaner",
		Context: c,
		Workers: 1,
		Sync:    l.sync,
		Synced: []cache.InformerSynced{
			secrets.Informer().HasSynced, accounts.Informer().HasSynced, pods.Informer().HasSynced},
	}
	l.Queue().Add(trackingConfigMap)
	return l
}

func (l *controller) sync(ctx context.Context, key string) error {
	since, err := l.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, trackingConfigMap, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("read since when tokens' uses are recorded: %w", err)
	}
	l.AddAfter(key, checkInterval)
	now, period := l.Now().UTC(), l.Config.LegacyServiceAccountTokenCleanUpPeriod
	if err != nil || !hasTrackedFor(since.Data["since"], period, now) {
		return nil // use has not been recorded long enough
	}
	secrets, err := l.secrets.List(labels.Everything())
	if err != nil {
		return err
	}
	var failures []error
	for _, s := range secrets {
		if s.Type == corev1.SecretTypeServiceAccountToken {
			failures = append(failures, l.applyAction(ctx, s, decide(s, period, now), now))
		}
	}
	return errors.Join(failures...)
}

// applyAction carries out the action for a Secret, unless the Secret was created by hand or a pod mounts it.
func (l *controller) applyAction(ctx context.Context, s *corev1.Secret, do action, now time.Time) error {
	if do == actionKeep {
		return nil
	}
	account, err := l.accounts.ServiceAccounts(s.Namespace).Get(s.Annotations[corev1.ServiceAccountNameKey])
	if err != nil || string(account.UID) != s.Annotations[corev1.ServiceAccountUIDKey] ||
		!slices.ContainsFunc(account.Secrets, func(r corev1.ObjectReference) bool { return r.Name == s.Name }) {
		return nil
	}
	pods, err := l.pods.Pods(s.Namespace).List(labels.Everything())
	if err != nil {
		return err
	}
	if slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return slices.Contains(mountedSecrets(pod), s.Name) }) {
		return nil
	}
	if do == actionRemove {
		err = l.Client.CoreV1().Secrets(s.Namespace).Delete(ctx, s.Name, loop.IfUnchanged(s))
	} else {
		var text []byte
		if text, err = json.Marshal(map[string]any{"metadata": map[string]any{"uid": s.UID,
			"resourceVersion": s.ResourceVersion,
			"labels":          map[string]string{invalidSince: now.Format(time.DateOnly)}}}); err != nil {
			return err
		}
		_, err = l.Client.CoreV1().Secrets(s.Namespace).Patch(ctx, s.Name, types.MergePatchType, text,
			metav1.PatchOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("end the unused token in secret %s/%s: %w", s.Namespace, s.Name, err)
	}
	return nil
}
