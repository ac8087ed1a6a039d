package upkeep

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"clusterctl/daemons/apiserver/write"
	"clusterctl/daemons/store"
)

// A server is an endpoint of the kubernetes service while its lease key exists in the store. Every leaseKeyInterval the
// server writes the key again, well before leaseKeyTTL ends.
const (
	leaseKeyTTL      = 15 * time.Second
	leaseKeyInterval = 5 * time.Second
	kubernetesName   = "kubernetes"
)

// advertise keeps this server among the endpoints of the kubernetes service, and removes servers whose lease key
// expired. On a clean stop it removes this server.
func (s *Upkeep) advertise(ctx context.Context) error {
	if err := s.config.Cache.WaitFor(ctx, 1); err != nil {
		return nil
	}
	tick := time.NewTicker(leaseKeyInterval)
	defer tick.Stop()
	const first = 500 * time.Millisecond
	pause, retry := first, make(<-chan time.Time)
	for {
		switch err := s.renewLeaseKey(ctx); {
		case err == nil:
			pause = first
		case ctx.Err() == nil:
			s.config.Log.Warn("keep the service kubernetes", "err", err)
			retry = time.After(pause)
			pause = min(2*pause, leaseKeyInterval)
		}
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
			defer cancel()
			if err := s.removeLeaseKey(last); err != nil {
				s.config.Log.Warn("leave the service kubernetes", "err", err)
			}
			return nil
		case <-tick.C:
		case <-retry:
		}
	}
}

// leaseKeyPrefix is the prefix of the servers' lease keys, the same as upstream's.
const leaseKeyPrefix = "masterleases"

func (s *Upkeep) leaseKey() string {
	return s.config.Prefix + "/" + leaseKeyPrefix + "/" + s.config.AdvertiseAddress
}

func (s *Upkeep) renewLeaseKey(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaseKeyInterval)
	defer cancel()
	data, err := json.Marshal(map[string]int{"port": s.config.AdvertisePort})
	if err != nil {
		return err
	}
	put, err := s.config.Store.Commit(ctx,
		store.Txn{Puts: []store.Put{{Key: s.leaseKey(), Value: data, TTL: leaseKeyTTL}}})
	if err != nil {
		return fmt.Errorf("say that this server is there: %w", err)
	}
	s.recordStoreAnswer(time.Now())
	// From here on the cache holds everything that is needed, so the store is not read.
	if err := s.config.Cache.WaitFor(ctx, put.Revision); err != nil {
		return fmt.Errorf("see which servers are there: %w", err)
	}
	if err := s.ensureService(ctx); err != nil {
		return err
	}
	return s.publishEndpoints(ctx, s.serverKeys.All())
}

func (s *Upkeep) removeLeaseKey(ctx context.Context) error {
	if _, err := s.config.Store.Commit(ctx, store.Txn{Deletes: []string{s.leaseKey()}}); err != nil {
		return err
	}
	return s.publishEndpoints(ctx,
		slices.DeleteFunc(s.serverKeys.All(), func(a string) bool { return a == s.config.AdvertiseAddress }))
}

// ensureService creates the kubernetes service with the first address of the service network.
func (s *Upkeep) ensureService(ctx context.Context) error {
	if s.config.Services == nil {
		return nil
	}
	single := corev1.IPFamilyPolicySingleStack
	_, err := s.config.Writes.Ensure(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: kubernetesName, Namespace: metav1.NamespaceDefault,
			Labels: map[string]string{"component": "apiserver", "provider": "kubernetes"},
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: s.config.Services.FirstAddress(),
			ClusterIPs:     []string{s.config.Services.FirstAddress()},
			IPFamilyPolicy: &single, SessionAffinity: corev1.ServiceAffinityNone,
			Ports: []corev1.ServicePort{
				{Name: "https", Protocol: corev1.ProtocolTCP, Port: 443,
					TargetPort: intstr.FromInt(s.config.AdvertisePort)},
			},
		},
	})
	return err
}

// publishEndpoints writes the endpoints of the kubernetes service. Servers that do so at the same time write the same
// content.
func (s *Upkeep) publishEndpoints(ctx context.Context, addresses []string) error {
	endpoints := &corev1.Endpoints{ //nolint:staticcheck // clients read them still
		ObjectMeta: metav1.ObjectMeta{Name: kubernetesName, Namespace: metav1.NamespaceDefault,
			Labels: map[string]string{discoveryv1.LabelSkipMirror: "true"}},
	}
	https, tcp, port, yes := "https", corev1.ProtocolTCP, int32(s.config.AdvertisePort), true
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: kubernetesName, Namespace: metav1.NamespaceDefault,
			Labels: map[string]string{discoveryv1.LabelServiceName: kubernetesName}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &https, Protocol: &tcp, Port: &port}},
	}
	if addr, err := netip.ParseAddr(s.config.AdvertiseAddress); err == nil && addr.Is6() {
		slice.AddressType = discoveryv1.AddressTypeIPv6
	}
	if len(addresses) > 0 {
		subset := corev1.EndpointSubset{
			Ports: []corev1.EndpointPort{{Name: https, Protocol: tcp, Port: port}},
		} //nolint:staticcheck // as above
		for _, a := range addresses {
			subset.Addresses = append(subset.Addresses, corev1.EndpointAddress{IP: a}) //nolint:staticcheck // as above
			slice.Endpoints = append(slice.Endpoints,
				discoveryv1.Endpoint{Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: &yes}})
		}
		endpoints.Subsets = append(endpoints.Subsets, subset)
	}
	return s.replaceEndpoints(ctx, endpoints, func(live runtime.Object) runtime.Object {
		next := live.DeepCopyObject().(*corev1.Endpoints) //nolint:staticcheck // as above
		next.Subsets = endpoints.Subsets
		return next
	}, slice, func(live runtime.Object) runtime.Object {
		next := live.DeepCopyObject().(*discoveryv1.EndpointSlice)
		next.Endpoints, next.Ports = slice.Endpoints, slice.Ports
		return next
	})
}

func (s *Upkeep) replaceEndpoints(
	ctx context.Context,
	endpoints runtime.Object,
	first func(runtime.Object) runtime.Object,
	slice runtime.Object,
	second func(runtime.Object) runtime.Object,
) error {
	for _, one := range []struct {
		gvr schema.GroupVersionResource
		obj runtime.Object
		set func(runtime.Object) runtime.Object
	}{
		{corev1.SchemeGroupVersion.WithResource("endpoints"), endpoints, first},
		{discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), slice, second},
	} {
		if !s.server.Target(one.gvr).IsServed {
			continue
		}
		own := write.Own{
			Resource: one.gvr, Namespace: metav1.NamespaceDefault, Name: kubernetesName, IsRepeated: true,
		}
		_, err := s.config.Writes.Change(ctx, own, func(live runtime.Object) (runtime.Object, error) {
			if live == nil {
				return one.obj.DeepCopyObject(), nil
			}
			return one.set(live), nil
		})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("write the %s of the service kubernetes: %w", one.gvr.Resource, err)
		}
	}
	return nil
}
