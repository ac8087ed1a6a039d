package faults

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/api/loadbalancer"
	"clusterctl/daemons/config"
)

// addressesAreUnique creates five services for three addresses, of which no two ever get the same address. Then it
// changes the addresses, and then it deletes services.
//
//style:long one scenario: the addresses after each change of the pools and of the Services
func addressesAreUnique(t *testing.T, s *testNamespace) string {
	services, maps := s.client.CoreV1().Services(s.namespace), s.client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	pool := func(addresses string) map[string]string {
		return map[string]string{s.namespace: fmt.Sprintf(`{"addresses":[%q],"namespaces":[%q]}`, addresses, s.namespace)}
	}
	if _, err := maps.Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: config.PoolsName}, Data: pool("10.77.0.1-10.77.0.3")},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		if _, err := services.Create(t.Context(),
			&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeLoadBalancer, Selector: labels, Ports: []corev1.ServicePort{{Port: 80}}}},
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var outcome []string
	see := func(what string, without int, want ...string) {
		s.waitFor(t, what, func(ctx context.Context) (bool, any) {
			list, err := services.List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, err
			}
			var given []string
			none := 0
			for i := range list.Items {
				service := &list.Items[i]
				addresses := loadbalancer.Addresses(service)
				for _, a := range addresses {
					if slices.Contains(given, a.String()) {
						t.Errorf("%s has %s, which another has, too", service.Name, a)
					}
					given = append(given, a.String())
				}
				if len(addresses) == 0 && loadbalancer.IsManaged(service) {
					none++
				}
			}
			slices.Sort(given)
			return none == without && slices.Equal(given, want), fmt.Sprint(given, none)
		})
		outcome = append(outcome, fmt.Sprintf("%s, %d without", strings.Join(want, " "), without))
	}
	remove := func(names ...string) {
		for _, name := range names {
			s.waitFor(t, "service "+name+" to go", func(ctx context.Context) (bool, any) {
				err := services.Delete(ctx, name, metav1.DeleteOptions{})
				return apierrors.IsNotFound(err), err
			})
		}
	}
	see("three addresses", 2, "10.77.0.1", "10.77.0.2", "10.77.0.3")
	list, err := services.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	has := slices.IndexFunc(list.Items,
		func(service corev1.Service) bool { return len(service.Status.LoadBalancer.Ingress) > 0 })
	remove(list.Items[has].Name)
	see("what has become free", 1, "10.77.0.1", "10.77.0.2", "10.77.0.3")
	updateObject(t, s, maps.Get, maps.Update, config.PoolsName,
		func(m *corev1.ConfigMap) { m.Data = pool("10.77.0.3-10.77.0.9") })
	see("other addresses", 0, "10.77.0.3", "10.77.0.4", "10.77.0.5", "10.77.0.6")
	s.waitFor(t, "no pools to be known", func(ctx context.Context) (bool, any) {
		err := maps.Delete(ctx, config.PoolsName, metav1.DeleteOptions{})
		return apierrors.IsNotFound(err), err
	})
	see("the addresses from before", 0, "10.77.0.3", "10.77.0.4", "10.77.0.5", "10.77.0.6")
	_, none, err := config.EncodePools(nil)
	if err != nil {
		t.Fatal(err)
	}
	s.waitFor(t, "the word that there are no pools", func(ctx context.Context) (bool, any) {
		_, err := maps.Create(ctx,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: config.PoolsName, Annotations: none}},
			metav1.CreateOptions{})
		return err == nil || apierrors.IsAlreadyExists(err), err
	})
	see("no addresses", 0)
	s.waitFor(t, "what said so to go", func(ctx context.Context) (bool, any) {
		err := maps.Delete(ctx, config.PoolsName, metav1.DeleteOptions{})
		return apierrors.IsNotFound(err), err
	})
	for _, service := range list.Items {
		remove(service.Name)
	}
	return strings.Join(outcome, "; ")
}
