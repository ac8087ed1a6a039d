package alloc

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/store"
)

func needsPorts(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeNodePort || svc.Spec.Type == corev1.ServiceTypeLoadBalancer &&
		(svc.Spec.AllocateLoadBalancerNodePorts == nil || *svc.Spec.AllocateLoadBalancerNodePorts)
}

// portsOf returns the node ports that a Service has.
func portsOf(svc *corev1.Service) map[int32]bool {
	ports := map[int32]bool{}
	for _, p := range svc.Spec.Ports {
		if p.NodePort != 0 {
			ports[p.NodePort] = true
		}
	}
	if svc.Spec.HealthCheckNodePort != 0 {
		ports[svc.Spec.HealthCheckNodePort] = true
	}
	return ports
}

func (a *Services) portKey(port int32) string {
	return a.cache.Key(portKind, strconv.Itoa(int(port)))
}

// portsOfOthers returns the node ports of all other Services, with the Services' keys.
func (a *Services) portsOfOthers(svc *corev1.Service) map[int32]string {
	used := map[int32]string{}
	if a.services != nil {
		a.services.Snapshot().Ascend("", "", func(e *cache.Entry) bool {
			obj, err := e.Object()
			if err != nil {
				return true // its ports are claimed by separate keys
			}
			if other, ok := obj.(*corev1.Service); ok && (other.Namespace != svc.Namespace || other.Name != svc.Name) {
				for port := range portsOf(other) {
					used[port] = e.Key
				}
			}
			return true
		})
	}
	return used
}

// allocatePorts sets the node ports that a Service needs, and claims them in the transaction. Ports that it no longer
// has are released.
func (a *Services) allocatePorts(svc, old *corev1.Service, txn *store.Txn) error {
	before := map[int32]bool{}
	if old != nil {
		before = portsOf(old)
	}
	own := map[int32]bool{}
	used := a.portsOfOthers(svc)
	take := func(want *int32, path *field.Path, allowed bool) error {
		switch {
		case *want != 0 && (int(*want) < a.firstPort || int(*want) > a.lastPort):
			reason := fmt.Sprintf("provided port is not in the valid range. The range of valid ports is "+
				"%d-%d", a.firstPort,
				a.lastPort)
			return invalidError(svc, field.Invalid(path, *want, reason))
		case *want != 0 && used[*want] != "":
			return invalidError(svc, field.Invalid(path, *want, "provided port is already allocated"))
		case *want == 0 && !allowed:
			return nil
		case *want == 0:
			port, err := a.freePort(used, own, before)
			if err != nil {
				return err
			}
			*want = port
		}
		if own[*want] {
			return nil // one port for two protocols
		}
		own[*want] = true
		if before[*want] {
			return nil
		}
		data, err := json.Marshal(map[string]string{"namespace": svc.Namespace, "name": svc.Name})
		if err != nil {
			return fmt.Errorf("claim the node port %d: %w", *want, err)
		}
		key := a.portKey(*want)
		txn.Guards = append(txn.Guards, store.Guard{Key: key})
		txn.Puts = append(txn.Puts, store.Put{Key: key, Value: data})
		return nil
	}
	needs := needsPorts(svc)
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		if !needs && svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
			p.NodePort = 0
			continue
		}
		if p.NodePort == 0 {
			p.NodePort = formerPort(old, *p)
		}
		if err := take(&p.NodePort, field.NewPath("spec", "ports").Index(i).Child("nodePort"), needs); err != nil {
			return err
		}
	}
	local := svc.Spec.Type == corev1.ServiceTypeLoadBalancer &&
		svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	if local {
		if svc.Spec.HealthCheckNodePort == 0 && old != nil {
			svc.Spec.HealthCheckNodePort = old.Spec.HealthCheckNodePort
		}
		if err := take(&svc.Spec.HealthCheckNodePort, field.NewPath("spec", "healthCheckNodePort"), true); err != nil {
			return err
		}
	} else {
		svc.Spec.HealthCheckNodePort = 0
	}
	for port := range before {
		if !own[port] {
			txn.Deletes = append(txn.Deletes, a.portKey(port))
		}
	}
	return nil
}

// formerPort returns the node port that a Service's port had before the update.
func formerPort(old *corev1.Service, p corev1.ServicePort) int32 {
	if old == nil {
		return 0
	}
	for _, before := range old.Spec.Ports {
		if before.Port == p.Port && before.Protocol == p.Protocol && before.Name == p.Name {
			return before.NodePort
		}
	}
	return 0
}

func (a *Services) freePort(used map[int32]string, own, before map[int32]bool) (int32, error) {
	size := a.lastPort - a.firstPort + 1
	start := rand.IntN(size)
	for i := range size {
		port := int32(a.firstPort + (start+i)%size)
		if used[port] == "" && !own[port] && !before[port] {
			return port, nil
		}
	}
	return 0, apierrors.NewInternalError(fmt.Errorf("failed to allocate a nodePort: range %d-%d is full", a.firstPort,
		a.lastPort))
}
