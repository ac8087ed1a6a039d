// Package serviceaccount gives every namespace what its pods need to call the API: the service account default, and the
// ConfigMap kube-root-ca.crt with the CA bundle.
package serviceaccount

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
)

const (
	defaultAccount = "default"
	rootCA         = "kube-root-ca.crt"
	rootCAKey      = "ca.crt"
)

type controller struct {
	loop.Context
	loop.Loop
	ownInformers    *informers.Factory // watches only those ConfigMaps
	namespaces      corelisters.NamespaceLister
	accounts        corelisters.ServiceAccountLister
	configMaps      corelisters.ConfigMapLister
	published       *prometheus.CounterVec
	publishDuration *prometheus.HistogramVec
}

// New returns the controller.
func New(c loop.Context) loop.Controller {
	namespaces := informers.Namespaces(c.Informers)
	own := informers.New(c.Client, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, rootCA).String()
	}))
	accounts, configMaps := informers.ServiceAccounts(c.Informers), informers.ConfigMaps(own)
	s := &controller{
		Context:      c,
		ownInformers: own,
		namespaces:   namespaces.Lister(),
		accounts:     accounts.Lister(),
		configMaps:   configMaps.Lister(),
	}
	s.published = c.Counter("root_ca_cert_publisher_sync_total",
		"How often a namespace's CA bundle was looked at, by the code of the answer.", "code")
	s.publishDuration = c.Histogram("root_ca_cert_publisher_sync_duration_seconds",
		"How long it took to look at a namespace's CA bundle.", prometheus.ExponentialBuckets(0.001, 2, 15), "code")
	s.Loop = loop.Loop{Name: "serviceaccount", Context: c, Sync: s.sync, Synced: []cache.InformerSynced{
		namespaces.Informer().HasSynced, accounts.Informer().HasSynced, configMaps.Informer().HasSynced}}
	c.On(namespaces.Informer(), s.Add)
	wakeNamespace := func(name string) func(obj any) {
		return func(obj any) {
			if o := obj.(metav1.Object); o.GetName() == name {
				s.Queue().Add(o.GetNamespace())
			}
		}
	}
	c.On(accounts.Informer(), wakeNamespace(defaultAccount))
	loop.OnState(configMaps.Informer(), wakeNamespace(rootCA))
	return s
}

// Run implements loop.Controller.
func (s *controller) Run(ctx context.Context) error {
	s.ownInformers.StartWithContext(ctx)
	defer s.ownInformers.Shutdown()
	return s.Loop.Run(ctx)
}

func (s *controller) sync(ctx context.Context, name string) error {
	namespace, err := s.namespaces.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	if namespace.DeletionTimestamp != nil || namespace.Status.Phase == corev1.NamespaceTerminating {
		return nil
	}
	if _, err := s.accounts.ServiceAccounts(name).Get(defaultAccount); apierrors.IsNotFound(err) {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: defaultAccount}}
		if _, err := s.Client.CoreV1().ServiceAccounts(name).Create(ctx, account,
			metav1.CreateOptions{}); ignoreExpected(err) != nil {
			return fmt.Errorf("create the default service account of namespace %s: %w", name, err)
		}
	}
	start := s.Now()
	err = s.publishCA(ctx, name)
	code := codeOf(err)
	s.published.WithLabelValues(code).Inc()
	s.publishDuration.WithLabelValues(code).Observe(s.Now().Sub(start).Seconds())
	return err
}

// codeOf returns the status code of an answer, for metrics.
func codeOf(err error) string {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return "200"
	case errors.As(err, &status) && status.Status().Code != 0:
		return strconv.Itoa(int(status.Status().Code))
	}
	return "500"
}

func (s *controller) publishCA(ctx context.Context, namespace string) error {
	text, err := s.RootCA()
	if err != nil || text == nil {
		return err
	}
	want := map[string]string{rootCAKey: string(text)}
	client := s.Client.CoreV1().ConfigMaps(namespace)
	current, err := s.configMaps.ConfigMaps(namespace).Get(rootCA)
	if apierrors.IsNotFound(err) {
		bundle := &corev1.ConfigMap{
			Data: want,
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: rootCA, Annotations: map[string]string{
				"kubernetes.io/description": "Contains a CA bundle that can be used to verify the kube-apiserver " +
					"when using internal endpoints such as the internal service IP or kubernetes.default.svc."}},
		}
		_, err := client.Create(ctx, bundle, metav1.CreateOptions{})
		return ignoreExpected(err)
	} else if err != nil {
		return err
	}
	if len(current.Data) == 1 && current.Data[rootCAKey] == want[rootCAKey] {
		return nil
	}
	updated := current.DeepCopy()
	updated.Data = want
	_, err = client.Update(ctx, updated, metav1.UpdateOptions{})
	return ignoreExpected(err)
}

// ignoreExpected returns nil for errors that mean that a write is no longer necessary, else err.
func ignoreExpected(err error) error {
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) ||
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}
