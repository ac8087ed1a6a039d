package bootstraptoken

import (
	"context"
	"fmt"
	"maps"
	"time"

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

// clusterInfo is the ConfigMap in kube-public that machines read before they trust the cluster.
const clusterInfo = "cluster-info"

type signer struct {
	loop.Context
	loop.Loop
	ownInformers *informers.Factory // watches only that ConfigMap
	secrets      corelisters.SecretLister
	maps         corelisters.ConfigMapLister
}

// NewSigner returns the controller that signs cluster-info.
func NewSigner(c loop.Context) loop.Controller {
	own := informers.New(c.Client, informers.WithNamespace(metav1.NamespacePublic),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, clusterInfo).String()
		}))
	secrets, configMaps := informers.Secrets(c.Informers), informers.ConfigMaps(own)
	s := &signer{Context: c, ownInformers: own, secrets: secrets.Lister(), maps: configMaps.Lister()}
	s.Loop = loop.Loop{
		Name:            "bootstrap-signer",
		QueueMetricName: "bootstrap_signer_queue",
		Context:         c,
		Workers:         1,
		Sync:            s.sync,
		Synced: []cache.InformerSynced{
			secrets.Informer().HasSynced, configMaps.Informer().HasSynced},
	}
	c.On(secrets.Informer(), func(obj any) {
		if isToken(obj.(*corev1.Secret)) {
			s.Queue().Add(clusterInfo)
		}
	})
	loop.OnState(configMaps.Informer(), func(obj any) {
		if m := obj.(*corev1.ConfigMap); m.Namespace == metav1.NamespacePublic && m.Name == clusterInfo {
			s.Queue().Add(clusterInfo)
		}
	})
	return s
}

// Run implements loop.Controller.
func (s *signer) Run(ctx context.Context) error {
	s.ownInformers.StartWithContext(ctx)
	defer s.ownInformers.Shutdown()
	return s.Loop.Run(ctx)
}

func (s *signer) sync(ctx context.Context, _ string) error {
	info, err := s.maps.ConfigMaps(metav1.NamespacePublic).Get(clusterInfo)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	secrets, err := s.secrets.Secrets(metav1.NamespaceSystem).List(labels.Everything())
	if err != nil {
		return err
	}
	now := s.Now()
	want, err := withSignatures(info.Data, secrets, now)
	if err != nil {
		return fmt.Errorf("sign cluster-info: %w", err)
	}
	if soonest := untilNextExpiry(secrets, now); soonest > 0 {
		s.AddAfter(clusterInfo, soonest)
	}
	if maps.Equal(info.Data, want) {
		return nil
	}
	updated := info.DeepCopy()
	updated.Data = want
	if _, err := s.Client.CoreV1().ConfigMaps(metav1.NamespacePublic).Update(ctx, updated,
		metav1.UpdateOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		return fmt.Errorf("sign cluster-info: %w", err)
	}
	return nil
}

// untilNextExpiry returns the time until the first of the tokens expires. Zero means that none expires.
func untilNextExpiry(secrets []*corev1.Secret, now time.Time) (soonest time.Duration) {
	for _, s := range secrets {
		if remaining, _ := remainingTime(s, now); isToken(s) && remaining > 0 && (soonest == 0 || remaining < soonest) {
			soonest = remaining
		}
	}
	return soonest
}
